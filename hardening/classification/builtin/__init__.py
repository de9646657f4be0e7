"""Every built-in rule."""

from __future__ import annotations

from ..rule import Rule
from . import aws, broker, celery, django, grpc, http, pydantic, python, redis, smtp, stripe

__all__ = ["BUILTIN"]

BUILTIN: tuple[Rule, ...] = (
    *python.RULES,
    *celery.RULES,
    *django.RULES,
    *http.RULES,
    *smtp.RULES,
    *redis.RULES,
    *broker.RULES,
    *aws.RULES,
    *grpc.RULES,
    *stripe.RULES,
    *pydantic.RULES,
)
