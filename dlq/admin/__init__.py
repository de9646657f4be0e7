"""The admin of dead letters, their groups and operations."""

from __future__ import annotations

from django.contrib import admin

from dlq.models import DeadLetter, LetterGroup, Operation

from .groups import LetterGroupAdmin
from .letters import DeadLetterAdmin
from .operation_admin import OperationAdmin

__all__ = ["DeadLetterAdmin", "LetterGroupAdmin", "OperationAdmin"]

admin.site.register(DeadLetter, DeadLetterAdmin)
admin.site.register(LetterGroup, LetterGroupAdmin)
admin.site.register(Operation, OperationAdmin)
