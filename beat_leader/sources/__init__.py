"""Where schedules are kept: `chosen_source(app)` is in force."""

from .choice import chosen_source

__all__ = ["chosen_source"]
