"""Intake: messages that never become a task are kept as letters, and who waits for them is told."""
