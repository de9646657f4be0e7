"""Chaos: a seeded run of real workers under kills, cuts and restarts, and the ledger of each task.

A tool, as `hardening.testing` is, and built on it: nothing that runs in production imports it. It starts
every server that it uses, and refuses to send anything before the workers' own app has said that it is
connected to those (`preflight.py`, and once more in each worker, `witness.py`).
"""
