"""Tasks that reject their messages: their letters are kept before, and what RabbitMQ dead-letters is none.

A queue's dead-letter exchange may be ours or the project's, and a policy of the broker's decides that unseen:
so the message is rejected all the same, and noted before for the worker that takes it in. Which way it fails:
its letter is kept again, which its store takes for the same one, captured twice.
"""

from __future__ import annotations

from typing import Any

from celery import Celery

from hardening.notes import notes_for
from hardening.twins.here import dies_with_channel
from hardening.twins.work import Work

__all__ = ["KEPT_KEY", "has_letter", "note_kept"]

KEPT_KEY = "intake:kept"


def note_kept(app: Celery, message: Any) -> None:
    """The letter of a message is kept, which is about to be rejected. Never raises."""
    if dies_with_channel(message):
        notes_for(app, KEPT_KEY).add([Work.of(message).digest])


def has_letter(app: Celery, message: Any) -> bool:
    """Whether that was noted of a message; asked once, since the note is taken."""
    return notes_for(app, KEPT_KEY).take(Work.of(message).digest)
