"""Measures what hardening costs: ratios against plain Celery, both in one run."""
