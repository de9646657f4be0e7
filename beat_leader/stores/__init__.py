"""Tick stores and registers: in memory, in Redis, in a database. Each module has `Ticks` and `Register`."""
