"""What an operator pastes to teach the classifier an error class. Pure, and safe for any class name."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

__all__ = ["explain_command", "settings_snippet"]

# Also of a class within a function: acme.make.<locals>.Busy.
_PLAIN_NAME = re.compile(r"\w[\w.<>]*")


def settings_snippet(error_classes: Sequence[str]) -> str:
    """Python for the settings module: each class with a verdict to be thought over."""
    lines = [f'        {_literal(name)}: "transient",  # or "permanent"' for name in error_classes]
    return "\n".join(
        ["HARDENING = {", "    # ... the entries that are there", '    "CLASSIFY": {', *lines, "    },", "}"]
    )


def explain_command(error_class: str) -> str:
    """The command that shows what follows for a class; empty for what is no class name."""
    # Names come from messages, and this is for a shell: only what cannot be an option or a second command.
    if _PLAIN_NAME.fullmatch(error_class) is None:
        return ""
    return f"manage.py hardening_explain {shlex.quote(error_class)}"


def _literal(text: str) -> str:
    literal = repr(text)
    # The quotes of the rest of the snippet, where the text holds none that would end it.
    return literal if "'" in text or '"' in text else f'"{literal[1:-1]}"'
