"""Settings that a test steers by environment variables: database, HARDENING, DLQ, any Celery setting."""

from __future__ import annotations

import json
import os

from hardening.queues import durable_queue
from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS as _APPS

INSTALLED_APPS = [name for name in _APPS if name not in os.environ.get("TEST_WITHOUT_APPS", "").split(",")]
INSTALLED_APPS += ["tests.system.project"]

CELERY_RESULT_BACKEND = os.environ.get("CELERY_RESULT_BACKEND", "cache+memory://")
# A dead result backend shall answer within a test's patience: redis-py alone tries for 20 s and more.
CELERY_RESULT_BACKEND_TRANSPORT_OPTIONS = {
    "retry_policy": {"max_retries": 1, "interval_start": 0, "interval_step": 0.1, "interval_max": 0.1}
}

# Numbers that let a test see several attempts, and a whole outage, in a few seconds.
HARDENING = {
    "RETRY": {"BASE": "0.2 s", "FLOOR": "0.1 s", "CAP": "0.5 s"},
    "OUTAGE": {"FAILURES": 5, "FIRST_WAIT": "0.5 s", "LONGEST_WAIT": "1 s", "PROBE_LEASE": "10 s"},
    "CLASSIFY": {
        "tests.system.project.retrying.Misfit": {"verdict": "transient", "name": "a misfit passes"},
        "tests.system.project.retrying.CourierDown": {"verdict": "transient", "dependency": "courier"},
    },
    **json.loads(os.environ.get("TEST_HARDENING", "{}")),
}
if "TEST_QUEUES" in os.environ:  # {"name": {arguments of durable_queue}, ...}
    CELERY_TASK_QUEUES = [
        durable_queue(name, **more) for name, more in json.loads(os.environ["TEST_QUEUES"]).items()
    ]
if "TEST_DLQ" in os.environ:
    DLQ = json.loads(os.environ["TEST_DLQ"])
# {"CELERY_TASK_ACKS_LATE": false, ...}: as if the project had written them here.
globals().update(json.loads(os.environ.get("TEST_CELERY", "{}")))
