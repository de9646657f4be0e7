"""Dead man's switches: the leading Beat pings URLs, so that somebody outside notices when it falls silent.

Of two kinds, both as Healthchecks and those like it take them: BEAT_LEADER["PING"] says that a Beat leads and
ticks, and fails when its tick hangs; a schedule's own says that its task began (`/start`), succeeded, or
failed (`/fail`), each with the task's id as `rid`.

A thread of its own asks, so that no URL that is slow holds up a tick, and no tick that hangs is told to be
well: it knows when the last one ended. What a task came to is read from the rows that workers write. A new
leader tells only of what happened within the last minute, or a check that was long quiet would be told of old
success. A ping that nobody takes is tried twice, and then left: the silence tells of it.
"""

from __future__ import annotations

import logging
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from urllib.parse import urlencode, urlsplit, urlunsplit

from .clock import steady
from .ticks import Outcome, State, Tick, TickStore, TicksUnavailable

__all__ = ["Pings", "Seen", "ping_url", "post"]

logger = logging.getLogger("beat_leader")

_EVERY_SECONDS = 1.0
_TIMEOUT_SECONDS = 3.0
_TRIES = 2
_STALE_SECONDS = 30.0
_LOOK_BACK_MS = 60_000
_ROWS = 20

Post = Callable[[str, str], None]
"""Tell a URL something; raises OSError."""


def ping_url(url: str, signal: str = "", rid: str = "") -> str:
    """The URL of a signal: `start`, `fail`, or none for success. A query of its own stays."""
    scheme, host, path, query, _ = urlsplit(url)
    if signal:
        path = f"{path.rstrip('/')}/{signal}"
    more = urlencode({"rid": rid}) if rid else ""
    return urlunsplit((scheme, host, path, "&".join(filter(None, (query, more))), ""))


def post(url: str, text: str) -> None:
    """One POST, answered within seconds. Raises OSError."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError("only http and https are pinged")
    request = urllib.request.Request(url, data=text.encode(), method="POST")  # noqa: S310
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310
        answer.read(1)


@dataclass(slots=True)
class Seen:
    """What was told of one schedule. Pure: rows in, signals out."""

    told: dict[int, Outcome | State] = field(default_factory=dict)

    def signals(self, rows: list[Tick], *, since_ms: int) -> Iterator[tuple[str, str, str]]:
        """(signal, task id, text) of what is new in these rows, oldest first."""
        for row in sorted(rows, key=lambda each: each.due_ms):
            now: Outcome | State = row.outcome if row.outcome is not Outcome.UNKNOWN else row.state
            before = self.told.get(row.due_ms)
            if now == before:
                continue
            self.told[row.due_ms] = now
            if _moment_ms(row) >= since_ms:
                yield from _signals_of(row, before)
        for due_ms in sorted(self.told)[: -2 * _ROWS]:
            del self.told[due_ms]

    @property
    def is_waiting(self) -> bool:
        """Whether a task is on its way or running, so that more than the latest row is of interest."""
        return any(each in (State.DUE, State.SENT, Outcome.STARTED) for each in self.told.values())


def _signals_of(row: Tick, before: Outcome | State | None) -> Iterator[tuple[str, str, str]]:
    ended = row.outcome in (Outcome.SUCCEEDED, Outcome.DEAD)
    if row.outcome is Outcome.STARTED or (ended and before is not Outcome.STARTED and row.started_ms):
        yield "start", row.task_id, ""
    if row.outcome is Outcome.SUCCEEDED:
        yield "", row.task_id, ""
    elif row.outcome in (Outcome.DEAD, Outcome.CANCELLED):
        yield "fail", row.task_id, row.detail
    elif row.state is State.MISSED:
        yield "fail", row.task_id, "it could not be sent in its time"


def _moment_ms(row: Tick) -> int:
    return max(row.due_ms, row.decided_ms, row.sent_ms or 0, row.started_ms or 0, row.ended_ms or 0)


class Pings:
    """Of one Beat: `lead` and `ticked` are called by the thread that ticks; the rest happens in another."""

    def __init__(
        self,
        ticks: TickStore,
        *,
        url: str = "",
        every_seconds: float = 60.0,
        now_ms: Callable[[], int],
        post: Post = post,
        clock: Callable[[], float] = steady,
    ) -> None:
        """`url`: of Beat itself, empty: none. `now_ms`: the store's time."""
        self._ticks = ticks
        self._url = url
        self._every_seconds = every_seconds
        self._now_ms = now_ms
        self._post = post
        self._clock = clock
        self._urls: Mapping[str, str] = {}
        self._seen: dict[str, Seen] = {}
        self._since_ms = 0
        self._leads = False
        self._ticked_at = clock()
        self._own_at: float | None = None
        self._failed = False
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def lead(self, urls: Mapping[str, str]) -> None:
        """This Beat leads, and these schedules have a URL."""
        self._urls = {name: url for name, url in urls.items() if url}
        if not self._leads:
            self._seen, self._since_ms = {}, self._now_ms() - _LOOK_BACK_MS
            self._leads = True
        if self._thread is None and (self._urls or self._url):
            self._thread = threading.Thread(target=self._run, name="beat-pings", daemon=True)
            self._thread.start()

    def ticked(self, *, leads: bool) -> None:
        """A tick has ended."""
        self._ticked_at = self._clock()
        self._leads = self._leads and leads

    def stop(self) -> None:
        """No more pings."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.wait(_EVERY_SECONDS):
            try:
                self.turn()
            # The outermost loop of the thread: the next turn tries again.
            except Exception:
                logger.exception("pings failed; they go on")

    def turn(self) -> None:
        """Tell what is new. Called by the thread, and by tests."""
        if not self._leads:
            return
        self._tell_of_beat()
        try:
            self._tell_of_schedules()
        except TicksUnavailable as exc:
            logger.debug("what tasks came to is not known now: %s", exc)

    def _tell_of_beat(self) -> None:
        now = self._clock()
        if not self._url or (self._own_at is not None and now - self._own_at < self._every_seconds):
            return
        age = now - self._ticked_at
        if age <= _STALE_SECONDS:
            self._own_at, self._failed = now, False
            self._ping("Beat", self._url, "", "", "")
        elif not self._failed:
            self._failed = True
            self._ping("Beat", self._url, "fail", "", f"its last tick ended {age:.0f} s ago")

    def _tell_of_schedules(self) -> None:
        urls = self._urls
        if not urls:
            return
        last = self._ticks.last(list(urls))
        for name, row in last.items():
            seen = self._seen.setdefault(name, Seen())
            rows = self._ticks.history(name, limit=_ROWS) if seen.is_waiting or not seen.told else [row]
            for signal, rid, text in seen.signals(rows, since_ms=self._since_ms):
                self._ping(name, urls[name], signal, rid, text)

    def _ping(self, name: str, url: str, signal: str, rid: str, text: str) -> None:
        for tries_left in reversed(range(_TRIES)):
            try:
                self._post(ping_url(url, signal, rid), text)
                return
            # Also what http.client says of a URL that is none, with that URL in it.
            except (OSError, ValueError, HTTPException) as exc:
                if not tries_left:
                    # Whoever knows the URL can ping it: it is a secret.
                    logger.warning("the ping of %s was not taken: %s", name, type(exc).__name__)
