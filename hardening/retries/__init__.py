"""When a failed task is tried again: how long to wait, and when to stop."""
