"""Rules for pydantic, version 2 and 1."""

from __future__ import annotations

from ..rule import Rule
from ..verdict import Kind

__all__ = ["RULES"]

RULES: tuple[Rule, ...] = (
    Rule(
        name="pydantic.validation",
        classes=(
            "pydantic_core._pydantic_core.ValidationError",
            "pydantic.v1.error_wrappers.ValidationError",
            "pydantic.error_wrappers.ValidationError",
        ),
        verdict=Kind.PERMANENT,
        why="The data do not fit the model, and will not the next time.",
    ),
    Rule(
        name="pydantic.usage",
        classes=(
            "pydantic.errors.PydanticErrorMixin",
            "pydantic_core._pydantic_core.PydanticSerializationError",
            "pydantic_core._pydantic_core.SchemaError",
        ),
        verdict=Kind.PERMANENT,
        why="The model is wrong, or its data cannot be serialized.",
    ),
)
