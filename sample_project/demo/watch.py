"""Watches the jobs from outside until each of them is settled."""

from __future__ import annotations

import time
from collections.abc import Callable

from sample_project.demo.broker import held_keys
from sample_project.demo.jobs import CASE_OF
from sample_project.demo.ledger import Fate, Ledger, Letter, count
from sample_project.demo.letters import all_letters
from sample_project.demo.progress import Progress
from sample_project.effects import Effect, EffectReader

LOOK_SECONDS = 0.2
# Whoever is missing everywhere for so long is lost: a message in mid-move is missing for milliseconds.
LOST_AFTER_SECONDS = 10.0


class Watch:
    """All that was seen of the published jobs so far, and the letters of the last look.

    `scheduled` has the effects of what Beat sent, which is counted apart from the jobs.
    `published` maps delivery key to kind of job, for those that the broker took. `check` is called at each
    look; it raises when waiting on makes no sense, because a worker is gone for instance.
    """

    def __init__(self, *, effects: EffectReader, broker_url: str, check: Callable[[], None]) -> None:
        self.published: dict[str, str] = {}
        self.effects: list[Effect] = []
        self.scheduled: list[Effect] = []
        self.letters: list[Letter] = []
        self._reader = effects
        self._broker_url = broker_url
        self._check = check

    def look(self) -> Ledger:
        """The ledger as it is now."""
        self._check()
        # In the direction in which a job moves, so that none slips past.
        on_broker = held_keys(self._broker_url)
        self.letters = all_letters()
        self._read()
        return count(self.published, self.effects, self.letters, on_broker, kinds=tuple(CASE_OF))

    def wait_for(self, happened: Callable[[Effect], bool], *, timeout: float) -> Effect | None:
        """The first effect of this kind; None when it does not come in time."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            self._check()
            self._read()
            found = next((effect for effect in self.effects if happened(effect)), None)
            if found is not None:
                return found
            time.sleep(LOOK_SECONDS / 10)
        return None

    def settle(self, *, timeout: float, label: str, each_look: Callable[[], None] = lambda: None) -> Ledger:
        """Wait until the broker holds nothing and every job has its fate, and return the ledger.

        It is returned unsettled after `timeout`, or once a job has been missing everywhere for long.
        """
        progress = Progress(label, len(self.published))
        deadline = time.monotonic() + timeout
        quiet_since: float | None = None
        try:
            while True:
                ledger = self.look()
                each_look()
                lost, pending = ledger.total.of(Fate.LOST), ledger.total.of(Fate.PENDING)
                progress.show(len(self.published) - lost - pending)
                now = time.monotonic()
                if now >= deadline:
                    return ledger
                if not held_keys(self._broker_url):
                    if not lost and not pending:
                        return self.look()
                    quiet_since = quiet_since or now
                    if now - quiet_since > LOST_AFTER_SECONDS:
                        return ledger
                else:
                    quiet_since = None
                time.sleep(LOOK_SECONDS)
        finally:
            progress.end()

    def _read(self) -> None:
        for effect in self._reader.new():
            (self.scheduled if effect.scheduled else self.effects).append(effect)
