"""What becomes of the tasks of schedules: written into their rows, not piled up, not run at the same time."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from typing import Any

from beat_leader.stores.redis import Ticks
from beat_leader.ticks import Outcome, State
from tests.helpers.wait import wait_until

from .beats import Beats
from .stage import PROJECT

LEADER = {"SOURCE": "code", "SCHEDULES": {"single": {"OVERLAP": False}}}


def entry(name: str, every: float, **more: Any) -> dict[str, Any]:
    return {"task": "tick_off", "schedule": every, "kwargs": {"name": name, **more}}


def test_stopped_workers_meet_no_pile_slow_tasks_do_not_overlap_and_rows_say_what_happened(new_stage) -> None:
    schedules = {
        "often": entry("often", 1.0),
        "single": entry("single", 1.0, seconds=2.5),
        "failing": entry("failing", 4.0, fails=True),
    }
    settings = {"CELERY_BEAT_SCHEDULE": schedules, "BEAT_LEADER": LEADER}
    with new_stage("redis") as stage, ExitStack() as stack:
        ticks = Ticks(url=stage.broker_url)
        Beats(stage, 1000, settings, stack).start()

        def rows(name: str, **wanted: Any) -> list[Any]:
            return [
                row
                for row in ticks.history(name)
                if all(getattr(row, key) == value for key, value in wanted.items())
            ]

        # No worker runs: each message of `often` expires when the next one is due.
        wait_until(lambda: len(rows("often", state=State.SENT)) >= 5, 30, lambda: str(ticks.history()))
        stage.worker(
            concurrency=3,
            extra_args=("-I", f"{PROJECT}.scheduled"),
            TEST_CELERY=json.dumps(settings),
        )
        began = time.time()
        wait_until(lambda: len(rows("failing", outcome=Outcome.DEAD)) >= 1, 30, stage.logs)
        wait_until(lambda: len(stage.effects("single end")) >= 2, 30, stage.logs)

        at_once = [line for line in stage.effects("often start") if float(line.split()[2]) < began + 1.0]
        assert len(at_once) <= 2
        superseded = rows("often", outcome=Outcome.CANCELLED)
        assert len(superseded) >= 3
        assert {row.detail for row in superseded} == {"expired: the next due time had come"}
        assert {letter.task_name for letter in stage.letters()} == {"tick_off"}
        assert {letter.reason for letter in stage.letters()} == {"permanent"}

        lines = [line.split()[1] for line in stage.effects("single ")]
        assert lines == (["start", "end"] * len(lines))[: len(lines)]
        skipped = rows("single", state=State.SKIPPED)
        assert {row.why for row in skipped} == {"the one before has not ended"}

        done = rows("often", outcome=Outcome.SUCCEEDED)
        assert done
        assert all(row.started_ms <= row.ended_ms for row in done)
        (dead, *_) = rows("failing", outcome=Outcome.DEAD)
        assert [letter.reason for letter in stage.letters(task_id=dead.task_id)] == [dead.detail]
