"""Measures what hardening costs and what it brings, beside plain Celery in the same run."""
