"""Settings of the project; nothing is tuned but where things are. The variables come from the stage."""

from __future__ import annotations

import json
import os

from tests.helpers.databases import database_from_url

SECRET_KEY = "not a secret: nobody is served"
USE_TZ = True
TIME_ZONE = "UTC"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django_celery_beat",
    "hardening",
    "dlq",
    "beat_leader",
    "tests.chaos.beats.project",
]
DATABASES = {"default": database_from_url(os.environ["CHAOS_DATABASE"])}
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    DATABASES["default"]["OPTIONS"] = {"timeout": 20}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

CELERY_BROKER_URL = os.environ["CHAOS_BROKER"]
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_RESULT_BACKEND = "cache+memory://"
CELERY_TASK_TIME_LIMIT = 60
CELERY_BEAT_SCHEDULE = json.loads(os.environ.get("CHAOS_SCHEDULE", "{}"))
BEAT_LEADER = json.loads(os.environ.get("CHAOS_LEADER", "{}"))
