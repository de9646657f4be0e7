"""Publishes the jobs, as a web process would, and kills the one that is made for it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from sample_project.demo.errors import DemoError
from sample_project.demo.jobs import KILLED, Job
from sample_project.demo.progress import Progress
from sample_project.demo.watch import Watch
from sample_project.effects import STARTED

START_SECONDS = 20.0


def publish(jobs: Iterable[Job], *, total: int, watch: Watch, log_path: Path) -> None:
    """Publish the jobs; those that the broker took are noted in `watch.published`, and in a file."""
    progress = Progress("published", total)
    with log_path.open("a") as log:
        for job in jobs:
            send(job)
            watch.published[job.key] = job.case.kind
            log.write(f"{job.key} {job.case.kind}\n")
            progress.show(len(watch.published))
            if job.case.kind == KILLED:
                kill_its_process(job, watch)
    progress.end()


def send(job: Job) -> None:
    """Publish one job: an ordinary call of an ordinary task. Its task id becomes its delivery key."""
    from sample_project import celery_app  # Not before the environment is set.

    celery_app.tasks[job.case.task].apply_async(args=job.args, task_id=job.key)


def kill_its_process(job: Job, watch: Watch) -> None:
    """SIGKILL the child process in the middle of this job, as the kernel does when memory runs out."""
    started = watch.wait_for(
        lambda effect: effect.key == job.key and effect.outcome == STARTED, timeout=START_SECONDS
    )
    if started is None:
        raise DemoError(f"no worker started {job.case.task} within {START_SECONDS:.0f} s")
    with suppress(ProcessLookupError):
        os.kill(started.pid, signal.SIGKILL)
