"""What workers on RabbitMQ gave back unfinished on purpose, or lost alive: noted for who gets it next.

The argument. RabbitMQ marks as redelivered whatever was delivered before, and tells no more. A message that
comes back may have killed its worker, or have been given back by one that stops. Who gives back notes the
work before the message can be with anybody else; who gets a redelivery of which nothing is known asks here.
A worker that is killed between the note and the give-back was about to end in any case, and its message
counts as given back: the one start that it may have had is not counted.

A lost connection gives back without being asked. The worker notes what it had not begun as soon as it learns
of it; who gets the message in between may suspect it, which counts only if the same work kills a process
afterwards.

A message that came redelivered, and was not yet judged here, is not noted: whoever had it before may have
died of it, and the note would hide that.

On Redis nothing is noted: who restores a message writes into it why.

Which way it fails: suspected. A store that does not answer is left alone; see `hardening.notes`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from celery import Celery

from hardening.notes import notes_for
from hardening.twins.here import dies_with_channel

from .work import digest_of

__all__ = ["RETURNED_KEY", "note_returned", "was_returned"]

RETURNED_KEY = "poison:returned"


def was_returned(app: Celery, digest: str) -> bool:
    """Whether a work was given back within a day. False where the store does not answer."""
    return notes_for(app, RETURNED_KEY).has(digest)


def note_returned(app: Celery, messages: Iterable[Any], *, judged: bool) -> None:
    """These messages go back, and not because a process died: note those of RabbitMQ. Never raises.

    To be called before they go. `judged`: reception let them through, redelivered or not.
    """
    digests = [
        digest_of(message)
        for message in messages
        if dies_with_channel(message) and (judged or not (message.delivery_info or {}).get("redelivered"))
    ]
    if digests:
        notes_for(app, RETURNED_KEY).add(digests)
