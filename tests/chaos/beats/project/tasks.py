"""The work of every schedule: a line in a file, at its end."""

from __future__ import annotations

import os
from typing import Any

from celery import Task, shared_task

from hardening.core.identity import BEAT_HEADER


@shared_task(name="chaos.tick", bind=True)
def tick(self: Task) -> None:
    request: Any = self.request
    line = f"{request.id}\t{(request.headers or {}).get(BEAT_HEADER) or getattr(request, BEAT_HEADER, '')}\n"
    handle = os.open(os.environ["CHAOS_RUNS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)
