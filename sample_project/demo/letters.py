"""The dead letters of the store, as the ledger counts them."""

from __future__ import annotations

from collections import defaultdict

from sample_project.demo.ledger import Attempt, Letter, LetterState


def all_letters() -> list[Letter]:
    """Every letter; of those with one delivery key, the newest last."""
    from dlq.models import Attempt as AttemptRow  # Not before Django is set up.
    from dlq.models import DeadLetter
    from dlq.states import State

    state_of = {
        State.OPEN: LetterState.OPEN,
        State.REPLAYING: LetterState.REPLAYING,
        State.REPLAYED: LetterState.REPLAYED,
        State.DISCARDED: LetterState.CANCELLED,
    }
    letters = list(
        DeadLetter.objects.order_by("replay_number", "occurrence").values_list(
            "id", "delivery_key", "reason", "state"
        )
    )
    # After the letters: a letter and its attempts are stored at one time.
    attempts_of: defaultdict[object, list[Attempt]] = defaultdict(list)
    for letter, verdict, rule, began, failed in AttemptRow.objects.order_by("number").values_list(
        "letter_id", "verdict", "rule", "started_at", "failed_at"
    ):
        attempts_of[letter].append(Attempt(verdict=verdict, rule=rule, began=began, failed=failed))
    return [
        Letter(
            id=str(number),
            key=key,
            reason=reason,
            state=state_of[State(state)],
            attempts=tuple(attempts_of[number]),
        )
        for number, key, reason, state in letters
    ]


def missing_rules() -> str:
    """What `manage.py dlq_unclassified` gives an operator to paste; empty where every error has a rule."""
    from dlq.unclassified import unclassified

    found = unclassified()
    return found.snippet if found.classes else ""
