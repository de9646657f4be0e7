"""Settings of the benchmark, as bench/stand.py asks for them. BENCH_VARIANT: hardened, plain or defaults."""

from __future__ import annotations

import json
import os

SECRET_KEY = "not a secret: nobody is served"
USE_TZ = True
VARIANT = os.environ["BENCH_VARIANT"]
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.admin"]
INSTALLED_APPS += ["django.contrib.messages", "django.contrib.sessions"]
if VARIANT == "hardened":
    INSTALLED_APPS += ["hardening", "dlq", "beat_leader"]
INSTALLED_APPS += ["bench.project"]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
ROOT_URLCONF = "bench.project.urls"
STATIC_URL = "static/"
ALLOWED_HOSTS = ["localhost"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["BENCH_DATABASE"]}}
if "BENCH_SERVER" in os.environ:
    DATABASES["default"] = json.loads(os.environ["BENCH_SERVER"])
if "BENCH_LETTERS" in os.environ:
    DATABASES["letters"] = json.loads(os.environ["BENCH_LETTERS"])
    DLQ = {"DATABASE": "letters"}

CELERY_BROKER_URL = os.environ["BENCH_BROKER"]
CELERY_RESULT_BACKEND = os.environ["BENCH_RESULTS"]
if VARIANT != "hardened":
    CELERY_TASK_ACKS_LATE = True
if VARIANT != "defaults":
    CELERY_TASK_TIME_LIMIT = 60
if VARIANT == "plain":
    # As Celery's documentation recommends it for work that must not be lost, and as busy as ours.
    CELERY_TASK_REJECT_ON_WORKER_LOST = True
    CELERY_WORKER_PREFETCH_MULTIPLIER = int(os.environ["BENCH_PREFETCH"])
    if "BENCH_MAX_CONNECTIONS" in os.environ:
        CELERY_BROKER_TRANSPORT_OPTIONS = {"max_connections": int(os.environ["BENCH_MAX_CONNECTIONS"])}
HARDENING = json.loads(os.environ["BENCH_HARDENING"])
if "BENCH_SCHEDULES" in os.environ:
    # Periods from 30 to 90 s, evenly: due times of schedules that all began together are spread so.
    _COUNT = int(os.environ["BENCH_SCHEDULES"])
    CELERY_BEAT_SCHEDULE = {
        f"bench-{number:05}": {
            "task": "noop",
            "schedule": 30.0 + round(60_000 * number / _COUNT) / 1000,
            "options": {"queue": "beat"},
        }
        for number in range(_COUNT)
    }
    BEAT_LEADER = json.loads(os.environ["BENCH_LEADER"])
globals().update(json.loads(os.environ["BENCH_CELERY"]))
