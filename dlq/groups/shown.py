"""A group as plain values, for commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..models import LetterGroup
from .figures import OPEN_CAP, Trend, facets, newest_letters, open_counts, trends

__all__ = ["brief_groups", "full_group"]


def brief_groups(groups: list[LetterGroup]) -> list[dict[str, Any]]:
    """Groups in one line each; two queries for all of them."""
    names = [group.pk for group in groups]
    opened, trend = open_counts(names), trends(names)
    return [_brief(group, opened, trend) for group in groups]


def full_group(group: LetterGroup) -> dict[str, Any]:
    """Everything of one."""
    (brief,) = brief_groups([group])
    trend = trends([group.pk])[group.pk]
    return {
        **brief,
        "state_since": group.state_since,
        "state_by": group.state_by,
        "note": group.note,
        "snoozed_until": group.snoozed_until,
        "snoozed_release": group.snoozed_release,
        "resolved_release": group.resolved_release,
        "replay_on_release": group.replay_on_release,
        "hours": list(trend.day),
        "days": list(trend.week),
        "facets": {
            facet: {each.value: each.letters for each in values} for facet, values in facets(group.pk).items()
        },
        "sample": group.sample_id,
        "newest": [str(pk) for pk in newest_letters(group.pk, most=5).values_list("pk", flat=True)],
    }


def _brief(group: LetterGroup, opened: Mapping[str, int], trend: Mapping[str, Trend]) -> dict[str, Any]:
    count = opened[group.pk]
    return {
        "fingerprint": group.pk,
        "state": group.state,
        "task": group.task_name,
        "error_class": group.error_class,
        "reason": group.reason,
        "title": group.title,
        "place": group.place,
        "owner": group.owner,
        "letters": group.letters,
        "open": min(count, OPEN_CAP),
        "open_is_more": count > OPEN_CAP,
        "last_24_hours": trend[group.pk].last_24_hours,
        "last_7_days": trend[group.pk].last_7_days,
        "first_seen_at": group.first_seen_at.isoformat(),
        "last_seen_at": group.last_seen_at.isoformat(),
    }
