"""Settings of the kit's own project. CHAOS_VARIANT=plain: Celery with late acks, and nothing of ours."""

from __future__ import annotations

import os

SECRET_KEY = "not a secret: nobody is served"
USE_TZ = True
TIME_ZONE = "UTC"
PLAIN = os.environ.get("CHAOS_VARIANT") == "plain"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.admin",
    "django.contrib.messages",
    "django.contrib.sessions",
]
if not PLAIN:
    INSTALLED_APPS += ["hardening", "dlq"]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
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
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}

CELERY_BROKER_URL = "memory://"  # The kit gives its own.
CELERY_TASK_TIME_LIMIT = 120

PLAIN_VISIBILITY_SECONDS = 60
if PLAIN:
    # As Celery's documentation recommends it for work that must not be lost. Its visibility timeout of an
    # hour is shortened, and its look for lost messages every 100 s too, so that a run can see their effect.
    CELERY_TASK_ACKS_LATE = True
    CELERY_TASK_REJECT_ON_WORKER_LOST = True
    CELERY_WORKER_PREFETCH_MULTIPLIER = 1
    CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
    if os.environ.get("CHAOS_BROKER") == "rabbitmq":
        CELERY_BROKER_TRANSPORT_OPTIONS: dict[str, object] = {"confirm_publish": True}
    else:
        CELERY_BROKER_TRANSPORT_OPTIONS = {
            "visibility_timeout": PLAIN_VISIBILITY_SECONDS,
            "unacked_restore_interval": 1,
            "unacked_restore_throttle": 1,
        }
