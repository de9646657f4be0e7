"""Publishes the jobs, as a web process would, and kills those that are made for it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from sample_project.demo.errors import DemoError
from sample_project.demo.jobs import KILLED, MALFORMED, WORKER_KILLED, Job
from sample_project.demo.progress import Progress
from sample_project.demo.watch import Watch
from sample_project.effects import STARTED, Effect

START_SECONDS = 20.0


def publish(
    jobs: Iterable[Job], *, total: int, watch: Watch, log_path: Path, kill_worker: Callable[[], None]
) -> None:
    """Publish the jobs; those that the broker took are noted in `watch.published`, and in a file.

    `kill_worker` ends the worker that computes, with all its processes, and starts another.
    """
    progress = Progress("published", total)
    with log_path.open("a") as log:
        for job in jobs:
            send(job)
            watch.published[job.key] = job.case.kind
            log.write(f"{job.key} {job.case.kind}\n")
            progress.show(len(watch.published))
            if job.case.kind == KILLED:
                kill_its_process(job, watch)
            elif job.case.kind == WORKER_KILLED:
                _until_started(job, watch)
                kill_worker()
    progress.end()


def send(job: Job) -> None:
    """Publish one job: an ordinary call of an ordinary task. Its task id becomes its delivery key."""
    from sample_project import celery_app  # Not before the environment is set.

    if job.case.kind == MALFORMED:
        send_malformed(celery_app, job)
        return
    # By name: one of them is a task that no worker knows.
    celery_app.send_task(job.case.task, args=job.args, task_id=job.key)


def send_malformed(app: Any, job: Job) -> None:
    """What another program may put into the queue: the headers of a task, and a body that is none."""
    with app.producer_or_acquire() as producer:
        producer.publish(
            "a thumbnail, please",
            serializer="json",
            routing_key=app.conf.task_default_queue,
            headers={"task": job.case.task, "id": job.key, "lang": "sh"},
        )


def kill_its_process(job: Job, watch: Watch) -> None:
    """SIGKILL the child process in the middle of this job, as the kernel does when memory runs out."""
    with suppress(ProcessLookupError):
        os.kill(_until_started(job, watch).pid, signal.SIGKILL)


def _until_started(job: Job, watch: Watch) -> Effect:
    started = watch.wait_for(
        lambda effect: effect.key == job.key and effect.outcome == STARTED, timeout=START_SECONDS
    )
    if started is None:
        raise DemoError(f"no worker started {job.case.task} within {START_SECONDS:.0f} s")
    return started
