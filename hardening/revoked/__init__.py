"""Revokes that outlive every worker: kept in a store, by whoever hears of them first.

rules.py     what is revoked, how long it is remembered, how many are (pure)
store.py     the port, and which store an app has;  stores/: memory, redis, database
control.py   the client: what revokes keeps it before it tells the workers
mirror.py    the worker's copy, in the set that Celery asks before it runs a task
step.py      the worker: hears of revokes, looks for those that it missed
models.py    the table, where the broker is no Redis
"""
