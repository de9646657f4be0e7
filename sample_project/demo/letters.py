"""The dead letters of the store, as the ledger counts them, and their replay."""

from __future__ import annotations

from collections.abc import Sequence

from sample_project.demo.errors import DemoError
from sample_project.demo.ledger import Letter, LetterState


def all_letters() -> list[Letter]:
    """Every letter; of those with one delivery key, the newest last."""
    from dlq.models import DeadLetter  # Not before Django is set up.
    from dlq.states import State

    state_of = {
        State.OPEN: LetterState.OPEN,
        State.REPLAYING: LetterState.REPLAYING,
        State.REPLAYED: LetterState.REPLAYED,
        State.DISCARDED: LetterState.CANCELLED,
    }
    rows = DeadLetter.objects.order_by("replay_number", "occurrence").values_list(
        "id", "delivery_key", "reason", "state"
    )
    return [
        Letter(id=str(number), key=key, reason=reason, state=state_of[State(state)])
        for number, key, reason, state in rows
    ]


def replay_letters(ids: Sequence[str]) -> None:
    """Send these jobs again, as `manage.py dlq_replay` does. Raises DemoError if one was not."""
    from dlq.replay import replay

    outcome = replay(ids, by="operator")
    if outcome.failed:
        errors = "\n".join(sorted(set(outcome.failed.values())))
        raise DemoError(f"{len(outcome.failed)} of {len(ids)} dead letters were not sent again:\n{errors}")
