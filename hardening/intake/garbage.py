"""Garbage: what a worker found in a Redis list and what is no message of kombu's becomes a letter.

The transport sets it aside in one step, in the list `hardening.garbage`, for there is nothing that could be
acknowledged. A duty of each worker takes it in: the oldest entry is read in place, its letter is kept, and
then it is removed, by value. Dying in between, it is read once more, and its letter, which is named by its
bytes, is captured twice. A lock with an expiry keeps two workers apart; nothing but that count depends on
it. Without a store that takes letters the entries stay where they are.
"""

from __future__ import annotations

import logging
import os
import socket
from typing import TYPE_CHECKING
from uuid import uuid4
from weakref import WeakKeyDictionary

from celery import Celery

from hardening.capture import Delivery, LetterNotKept, keeper_for
from hardening.core.duties import Duty
from hardening.core.letter import DeadLetter
from hardening.core.reasons import Reason
from hardening.effective import transport_of
from hardening.store import StoreUnavailable

from .errors import NotATask
from .letters import raw_letter

if TYPE_CHECKING:  # redis-py is there only where Redis is the broker.
    from .garbage_list import GarbageList

__all__ = ["GARBAGE_DUTY", "garbage_letter", "take_in_garbage"]

logger = logging.getLogger("hardening")

EVERY_SECONDS = 2.0
_AT_ONCE = 20
_SEPARATOR = "\x06\x16"
_lists: WeakKeyDictionary[Celery, GarbageList] = WeakKeyDictionary()


def take_in_garbage(app: Celery) -> None:
    """Take in what lies there, at most a few entries a turn. Nothing where the broker is not Redis."""
    if transport_of(app) != "redis":
        return
    garbage = _lists.get(app)
    if garbage is None:
        from .garbage_list import GarbageList

        garbage = _lists[app] = GarbageList(app)
    try:
        garbage.each(lambda entry: _keep(app, entry), most=_AT_ONCE, token=uuid4().hex)
    except LetterNotKept:
        logger.warning("what was set aside as garbage stays in its list: no store takes its letter")
    except StoreUnavailable as exc:
        logger.debug("the list of garbage cannot be read now: %s", exc)


def _keep(app: Celery, entry: bytes) -> None:
    keeper_for(app).keep_and_close(garbage_letter(app, entry))


def garbage_letter(app: Celery, entry: bytes) -> DeadLetter:
    """The letter of an entry: the bytes as they were in the list, and the queue where it is known."""
    from hardening.leases.store import entry_of

    packed = entry_of(entry)
    item = entry if packed is None else packed.message
    list_key = "" if packed is None else str(packed.list_key)
    queue = list_key.partition(_SEPARATOR)[0]
    raw = Delivery(
        body=item,
        content_type="application/octet-stream",
        content_encoding="binary",
        headers={},
        properties={},
        exchange="",
        routing_key=queue,
        redelivered=False,
        pid=os.getpid(),
    )
    where = f"the list {list_key}" if list_key else "the list of leased messages"
    return raw_letter(
        app,
        raw,
        reason=Reason.GARBAGE,
        error=NotATask(f"what was in {where} is no message of kombu's"),
        worker=socket.gethostname(),
    )


GARBAGE_DUTY = Duty(name="garbage", every_seconds=EVERY_SECONDS, run=take_in_garbage)
