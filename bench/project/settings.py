"""Settings of the benchmark; BENCH_HARDENED decides whether our apps are in."""

from __future__ import annotations

import os

SECRET_KEY = "not a secret: nobody is served"
USE_TZ = True
HARDENED = os.environ.get("BENCH_HARDENED") == "1"
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.admin"]
INSTALLED_APPS += ["django.contrib.messages", "django.contrib.sessions"]
if HARDENED:
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
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["BENCH_DATABASE"]}}

CELERY_BROKER_URL = os.environ["BENCH_BROKER"]
CELERY_RESULT_BACKEND = os.environ["BENCH_RESULTS"]
CELERY_TASK_TIME_LIMIT = 60
if not HARDENED:
    # Plain Celery as its documentation recommends it for work that must not be lost.
    CELERY_TASK_ACKS_LATE = True
    CELERY_TASK_REJECT_ON_WORKER_LOST = True
    if "BENCH_PREFETCH" in os.environ:
        CELERY_WORKER_PREFETCH_MULTIPLIER = int(os.environ["BENCH_PREFETCH"])
