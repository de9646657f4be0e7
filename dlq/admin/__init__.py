"""The admin of dead letters: look, replay, discard."""

from __future__ import annotations

from django.contrib import admin

from dlq.models import DeadLetter

from .letters import DeadLetterAdmin

__all__ = ["DeadLetterAdmin"]

admin.site.register(DeadLetter, DeadLetterAdmin)
