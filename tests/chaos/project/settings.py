"""Settings of the storm's project; CHAOS_VARIANT is "hardened" or "plain". Nothing of hardening is tuned."""

from __future__ import annotations

import os

from tests.helpers.databases import database_from_url

SECRET_KEY = "not a secret: nobody is served"
USE_TZ = True
TIME_ZONE = "UTC"
VARIANT = os.environ["CHAOS_VARIANT"]
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    *(["hardening", "dlq"] if VARIANT == "hardened" else []),
    "tests.chaos.project",
]
DATABASES = {"default": database_from_url(os.environ["TEST_DATABASE_URL"])}
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    DATABASES["default"]["OPTIONS"] = {"timeout": 20}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

CELERY_BROKER_URL = os.environ["CELERY_BROKER_URL"]
CELERY_RESULT_BACKEND = os.environ["CELERY_RESULT_BACKEND"]
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TASK_TIME_LIMIT = 60
