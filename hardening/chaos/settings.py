"""Laid over the project's settings for a run: its databases, caches, mail and stores become the kit's own.

The broker and the result backend come by CELERY_BROKER_URL, CELERY_BROKER_READ_URL, CELERY_BROKER_WRITE_URL
and CELERY_RESULT_BACKEND of the environment, which Celery takes before any setting. `preflight.py` looks
whether all that worked.
"""

from __future__ import annotations

import importlib
import json
import os
from typing import Any

from .overlay import caches, databases, hardening_settings

_base: Any = importlib.import_module(os.environ["CHAOS_SETTINGS"])
_own = {name: getattr(_base, name) for name in dir(_base) if name.isupper()}
globals().update(_own)

DATABASES = databases(_own.get("DATABASES") or {}, json.loads(os.environ["CHAOS_DATABASE"]))
CACHES = caches(_own.get("CACHES") or {}, os.environ["CHAOS_CACHE_URL"])
EMAIL_BACKEND = "django.core.mail.backends.dummy.EmailBackend"
HARDENING = hardening_settings(
    _own.get("HARDENING") or {},
    lease_seconds=float(os.environ["CHAOS_LEASE"]),
    as_configured=os.environ.get("CHAOS_AS_CONFIGURED") == "1",
    report=os.environ.get("CHAOS_VARIANT") == "plain",
)
