"""Poison: tasks that kill the process which runs them. Their deaths are counted, and at a limit they end."""
