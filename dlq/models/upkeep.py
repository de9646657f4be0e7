"""Who does what all workers could do, and which releases have run."""

from __future__ import annotations

from typing import ClassVar, Self

from django.db import models

from .letter import NAME_LENGTH
from .places import HereManager

__all__ = ["SeenRelease", "Turn"]


class Turn(models.Model):
    """Work that one process at a time does: who does it holds a lock on its row, for one transaction.

    `at` is when it was last done, so that a page can say that nobody does it.
    """

    name = models.CharField(max_length=64, primary_key=True)
    at = models.DateTimeField()

    objects: ClassVar[HereManager[Self]] = HereManager()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return self.name


class SeenRelease(models.Model):
    """A release of the project that a worker here ran."""

    name = models.CharField(max_length=NAME_LENGTH, primary_key=True)
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    # When it counted as running: no worker of another release was heard any more, or none was waited for.
    settled_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[HereManager[Self]] = HereManager()

    class Meta:
        default_permissions = ()
        indexes = (models.Index(fields=("last_at",), name="dlq_release_last"),)

    def __str__(self) -> str:
        return self.name
