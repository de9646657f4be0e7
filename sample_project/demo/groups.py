"""The groups of the dead letters, and what an operator says of them."""

from __future__ import annotations

from sample_project.demo.operation import OPERATOR
from sample_project.demo.outcomes import Group

TURN_SECONDS = 2.0


def all_groups() -> list[Group]:
    """Every group, the largest first, with all letters counted."""
    from dlq.groups.duty import tend  # Not before Django is set up.
    from dlq.groups.figures import listed, open_counts

    while tend(TURN_SECONDS, by_hand=True).more:
        pass
    groups = list(listed(order="letters"))
    left = open_counts([group.pk for group in groups])
    return [
        Group(
            fingerprint=group.pk,
            title=f"{group.error_class.rpartition('.')[2] or group.reason}: {group.title}",
            task=group.task_name.rpartition(".")[2],
            reason=group.reason,
            letters=group.letters,
            open=left[group.pk],
            state=group.state,
        )
        for group in groups
    ]


def resolve_mended() -> list[Group]:
    """Call resolved the groups without an open letter: a new letter would reopen one as regressed."""
    from dlq.groups.triage import resolve

    resolve([group.fingerprint for group in all_groups() if not group.open], by=OPERATOR)
    return all_groups()
