"""The names of the project's tasks in every style. Not in the project: tests must not import its tasks."""

STYLES = (
    "shared",
    "of_app",
    "class_based",
    "with_base",
    "own_call",
    "own_call_no_super",
    "decorated",
    "early",
)
