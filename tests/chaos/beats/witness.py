"""The witness between broker and worker: it notes each message of a Beat, and passes it on as it is."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import redis

from hardening.core.identity import BEAT_HEADER

from .ledger import Received

__all__ = ["SENT", "WORK", "Witness"]

SENT = "sent"
"""The queue that schedules are sent to."""

WORK = "work"
"""The queue that the worker takes from."""

_WAIT_SECONDS = 0.5


class Witness:
    """A thread from `start` to `stop`. Moments are those of `time.monotonic`."""

    def __init__(self, broker_url: str) -> None:
        self._client = redis.Redis.from_url(broker_url)
        self._messages: list[Received] = []
        self._change = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="witness")

    def start(self) -> None:
        """Begin to note."""
        self._thread.start()

    def stop(self) -> None:
        """Note no more, and leave no connection open."""
        self._stopping.set()
        self._thread.join(5)
        self._client.close()

    @property
    def messages(self) -> list[Received]:
        """All so far, in the order in which they came."""
        with self._change:
            return list(self._messages)

    @property
    def latest(self) -> Received | None:
        """The last one."""
        with self._change:
            return self._messages[-1] if self._messages else None

    def wait(self, fits: Callable[[Received], bool], *, since: float, seconds: float) -> Received | None:
        """The first one since that moment that fits; None: there was none in time."""
        deadline = time.monotonic() + seconds
        with self._change:
            seen = next((n for n, each in enumerate(self._messages) if each.at >= since), len(self._messages))
            while True:
                for number in range(seen, len(self._messages)):
                    if fits(self._messages[number]):
                        return self._messages[number]
                seen = len(self._messages)
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._change.wait(left)

    def waiting(self) -> int:
        """Messages that no worker has taken."""
        return int(self._client.llen(WORK))

    def _run(self) -> None:
        client: Any = self._client
        while not self._stopping.is_set():
            raw = client.blmove(SENT, WORK, _WAIT_SECONDS, "RIGHT", "LEFT")
            if raw is not None:
                self._note(raw)

    def _note(self, raw: bytes) -> None:
        at = time.monotonic()
        headers = json.loads(raw)["headers"]
        due_ms, _, schedule = headers[BEAT_HEADER].partition(" ")
        pid = int(headers["origin"].partition("@")[0].removeprefix("gen"))
        message = Received(schedule=schedule, due_ms=int(due_ms), id=headers["id"], pid=pid, at=at)
        with self._change:
            self._messages.append(message)
            self._change.notify_all()
