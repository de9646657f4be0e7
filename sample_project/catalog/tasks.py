"""Thumbnails and contact sheets of the product pictures, made with Pillow."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from celery import Task, shared_task
from django.conf import settings
from PIL import Image, ImageFilter, UnidentifiedImageError

from hardening import Permanent
from sample_project.effects import effect

THUMBNAIL = (160, 160)
TILE = (320, 240)


@shared_task(bind=True, time_limit=30)
def make_thumbnail(self: Task[Any, Any], picture: str) -> str:
    """Make a picture's thumbnail and return its name. Running it twice gives the same file.

    A broken picture stays broken: the job is kept as a dead letter at once, without retries.
    """
    with effect(self):
        image = _load(picture)
        image.thumbnail(THUMBNAIL)
        return _save(image, f"{Path(picture).stem}.jpg")


@shared_task(bind=True, time_limit=60)
def make_contact_sheet(self: Task[Any, Any], pictures: list[str]) -> str:
    """Put many pictures on one sheet: some seconds of computing.

    When the worker process dies half-way, for want of memory for instance, the job is run again.
    """
    with effect(self):
        columns = 4
        rows = -(-len(pictures) // columns)
        sheet = Image.new("RGB", (columns * TILE[0], rows * TILE[1]))
        for place, picture in enumerate(pictures):
            tile = _load(picture).resize(TILE, Image.Resampling.LANCZOS).filter(ImageFilter.ModeFilter(5))
            sheet.paste(tile, (place % columns * TILE[0], place // columns * TILE[1]))
        return _save(sheet, "contact-sheet.jpg")


@shared_task(bind=True, time_limit=30)
def count_thumbnails(self: Task[Any, Any]) -> int:
    """How many there are: what a shop asks itself at regular times. See CELERY_BEAT_SCHEDULE."""
    with effect(self):
        return sum(1 for _ in (Path(settings.MEDIA_ROOT) / "thumbnails").glob("*.jpg"))


def _load(picture: str) -> Image.Image:
    try:
        with Image.open(Path(settings.MEDIA_ROOT) / "pictures" / picture) as image:
            return image.convert("RGB")
    except UnidentifiedImageError:
        raise  # Not a picture at all: HARDENING["CLASSIFY"] has a rule for it.
    except OSError as exc:
        # Pillow reports a truncated file as an OSError without a number, which no rule can tell from others.
        if exc.errno is not None:
            raise
        raise Permanent(f"{picture} is broken: {exc}") from exc


def _save(image: Image.Image, name: str) -> str:
    folder = Path(settings.MEDIA_ROOT) / "thumbnails"
    folder.mkdir(parents=True, exist_ok=True)
    # A file of our own, then a rename: nobody sees half a picture, not even when two runs overlap.
    unfinished = folder / f".{os.getpid()}-{name}"
    image.save(unfinished, "JPEG")
    unfinished.replace(folder / name)
    return name
