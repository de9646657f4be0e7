"""Takes discarded dead letters back: discarding is an archive until somebody, or the retention, purges them.

The argument. Of one work one letter is live, by a unique constraint (see `sink`): restoring one is refused
by the database where another is live, also one that is captured at the same moment; and a capture that comes
after it finds it and is counted with it. So restoring looks only to say why, never to be right.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from uuid import UUID, uuid4

from django.db import IntegrityError, transaction

from .conf import database_alias
from .lookup import letters_of, states_of, unique_ids
from .models import DeadLetter
from .text import clean

__all__ = ["NEWER", "RestoreOutcome", "restore"]

NEWER = "newer"
"""Left alone: another letter of the same work is open or being replayed, or is restored with these."""

_CHUNK = 500
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOutcome:
    """What became of each letter. `skipped` counts by state, "missing" for no letter, and NEWER."""

    restored: tuple[UUID, ...]
    skipped: Mapping[str, int]
    dry_run: bool = False

    def as_dict(self) -> dict[str, object]:
        """Plain form for --json."""
        return {
            "restored": [str(pk) for pk in self.restored],
            "skipped": dict(self.skipped),
            "dry_run": self.dry_run,
        }


def restore(
    letter_ids: Iterable[UUID | str], *, by: str, why: str = "", dry_run: bool = False
) -> RestoreOutcome:
    """discarded -> open, by compare-and-set; whoever comes second changes nothing."""
    ids = unique_ids(letter_ids)
    restored: list[UUID] = []
    skipped: Counter[str] = Counter()
    while chunk := list(islice(ids, _CHUNK)):
        free, taken = _sorted_out(chunk)
        changed = free if dry_run else _restored(free)
        restored += changed
        skipped += states_of(set(chunk) - set(changed) - set(taken))
        skipped += Counter({NEWER: len(taken)})
    if restored and not dry_run:
        _log.info(
            "%d discarded letters are open again: %s",
            len(restored),
            clean(why) or "no reason given",
            extra={"letters": len(restored), "by": by},
        )
    return RestoreOutcome(restored=tuple(restored), skipped=dict(skipped), dry_run=dry_run)


def _sorted_out(chunk: Sequence[UUID]) -> tuple[list[UUID], list[UUID]]:
    """Those that may be restored as things are, and those that another letter of the same work hinders."""
    rows = letters_of(chunk).discarded().order_by("-occurrence").values_list("pk", "body_digest")
    pairs = list(rows)
    live = DeadLetter.objects.using(database_alias()).filter(live_digest__in=[digest for _, digest in pairs])
    seen = set(live.order_by().values_list("live_digest", flat=True))
    free: list[UUID] = []
    taken: list[UUID] = []
    for pk, digest in pairs:
        (taken if digest in seen else free).append(pk)
        seen.add(digest)
    return free, taken


def _restored(ids: Sequence[UUID]) -> list[UUID]:
    if not ids:
        return []
    token = uuid4()
    try:
        _restore(ids, token)
    except IntegrityError:
        # One of them was captured again since we looked: the others must not wait for it.
        for pk in ids:
            try:
                _restore([pk], token)
            except IntegrityError:
                continue
    return list(letters_of(ids).open().claimed_with(token).values_list("pk", flat=True))


def _restore(ids: Sequence[UUID], token: UUID) -> None:
    with transaction.atomic(using=database_alias()):
        letters_of(ids).restore(token=token)
