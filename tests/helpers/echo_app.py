"""A plain Celery app, without Django, for tests of the test tools themselves."""

from __future__ import annotations

import time

from celery import Celery

app = Celery("echo", broker="memory://", set_as_current=False)
app.conf.update(task_acks_late=True, worker_prefetch_multiplier=1, broker_connection_retry_on_startup=True)


@app.task(name="echo.say")
def say(word: str) -> str:
    print(f"said {word}", flush=True)
    return word


@app.task(name="echo.hold")
def hold(seconds: float) -> None:
    print("holding", flush=True)
    time.sleep(seconds)
