"""Settings of the shop. Where its data lies and whom it talks to comes from the environment: SHOP_..."""

import os
import secrets
from pathlib import Path

SHOP_DATA = Path(os.environ.get("SHOP_DATA") or Path(__file__).parent / ".data").resolve()
SHOP_DATA.mkdir(parents=True, exist_ok=True)


def _secret_key(path: Path) -> str:
    """One key for each data directory, made at first use, readable by its owner only."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text()
    key = secrets.token_urlsafe(50)
    with os.fdopen(descriptor, "w") as file:
        file.write(key)
    return key


SECRET_KEY = _secret_key(SHOP_DATA / "secret_key")
DEBUG = False
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    # The whole installation of celery-hardening. DLQ keeps its defaults; HARDENING and BEAT_LEADER are below.
    "hardening",
    "dlq",
    "beat_leader",
    # The shop.
    "sample_project.catalog",
    "sample_project.notifications",
    "sample_project.billing",
    "sample_project.mistakes",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
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
            ],
        },
    },
]
ROOT_URLCONF = "sample_project.urls"
STATIC_URL = "static/"
MEDIA_ROOT = SHOP_DATA / "media"
USE_TZ = True
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": SHOP_DATA / "shop.sqlite3",
        "OPTIONS": {
            # Several worker processes write: readers do not block them (WAL), and a writer waits for its
            # turn from the start of its transaction (IMMEDIATE) instead of failing in the middle of it.
            "init_command": "PRAGMA journal_mode=WAL;",
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
        },
    }
}

EMAIL_HOST = "127.0.0.1"
EMAIL_PORT = int(os.environ.get("SHOP_SMTP_PORT") or 8025)
EMAIL_TIMEOUT = 5
DEFAULT_FROM_EMAIL = "shop@shop.example"

CELERY_BROKER_URL = os.environ.get("SHOP_BROKER_URL") or "redis://127.0.0.1:6379/0"
CELERY_RESULT_BACKEND = os.environ.get("SHOP_RESULT_URL") or "redis://127.0.0.1:6379/1"
# Two kinds of work, two queues, two workers: waiting for others goes to a gevent worker, computing and the
# database to a prefork worker. See README.md beside this file for the two commands.
CELERY_TASK_ROUTES = {
    "sample_project.notifications.tasks.*": {"queue": "io"},
    "sample_project.billing.tasks.send_receipt": {"queue": "io"},
}

# Two schedules, as short as a demo needs them. Any number of `celery -A sample_project beat` may run.
CELERY_BEAT_SCHEDULE = {
    "count every second": {"task": "sample_project.catalog.tasks.count_thumbnails", "schedule": 1.0},
    "count every two seconds": {
        "task": "sample_project.catalog.tasks.count_thumbnails",
        "schedule": 2.0,
        "options": {"queue": "io"},
    },
}

BEAT_LEADER = {
    # The demo counts every due time: none expires, and none is skipped when a takeover takes long. A real
    # project keeps the defaults: the latest of those that were missed, and nothing later than the next one.
    "SCHEDULES": {"count *": {"MISFIRE": "all", "EXPIRES": False}},
}

HARDENING = {
    # What the built-in rules cannot know: errors of a library without rules.
    "CLASSIFY": {"PIL.UnidentifiedImageError": "permanent"},
    # For a demo of some seconds. A real project keeps the defaults: ten attempts, some of them half an hour
    # apart. A task may say otherwise, as billing's write_statement and mistakes' wait_for_parcel do.
    "RETRY": {"BASE": "500 ms", "FLOOR": "250 ms", "CAP": "2 s", "MAX_ATTEMPTS": 3},
}
