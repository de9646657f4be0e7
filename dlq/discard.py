"""Gives dead letters up on purpose: only open ones, with who and why; the rows stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from uuid import UUID, uuid4

from django.utils import timezone

from .lookup import letters_of, states_of, unique_ids
from .models import NAME_LENGTH
from .text import clean, clip

__all__ = ["DiscardOutcome", "discard"]

_CHUNK = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardOutcome:
    """What became of each letter. `skipped` counts by state, "missing" for ids without a letter."""

    discarded: tuple[UUID, ...]
    skipped: Mapping[str, int]
    dry_run: bool = False

    def as_dict(self) -> dict[str, object]:
        """Plain form for --json."""
        return {
            "discarded": [str(pk) for pk in self.discarded],
            "skipped": dict(self.skipped),
            "dry_run": self.dry_run,
        }


def discard(
    letter_ids: Iterable[UUID | str], *, by: str, reason: str, dry_run: bool = False
) -> DiscardOutcome:
    """open -> discarded, by compare-and-set: a letter that a replay holds is left alone and counted."""
    ids = unique_ids(letter_ids)
    discarded: list[UUID] = []
    skipped: Counter[str] = Counter()
    while chunk := list(islice(ids, _CHUNK)):
        if dry_run:
            changed = list(letters_of(chunk).open().values_list("pk", flat=True))
        else:
            token = uuid4()
            letters_of(chunk).discard(
                by=clip(by, NAME_LENGTH), reason=clean(reason), token=token, now=timezone.now()
            )
            changed = list(letters_of(chunk).discarded().claimed_with(token).values_list("pk", flat=True))
        discarded += changed
        skipped += states_of(set(chunk) - set(changed))
    return DiscardOutcome(discarded=tuple(discarded), skipped=dict(skipped), dry_run=dry_run)
