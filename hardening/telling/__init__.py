"""What the worker's parent tells the result backend, so that its main loop never waits for an answer.

The argument. Failures that only the parent sees are told from its main loop: poison, a lost child, a hard
time limit, an expired or revoked task, a message that is no task. A result backend that takes connections
and never answers would hold that loop for as long as its client waits, with each of its retries: more than a
minute for each message, during which nothing is begun, timed out or acknowledged.

Short time-outs alone do not do: each client has its own, some have none, and the broker may be the backend.
So the parent has one thread that tells, a greenlet on gevent, with a backend of its own, for Celery's are one
for each thread (`teller.py`). The loop waits for it for GRACE_SECONDS at most, so that as long as the backend
works all is told before the message is acknowledged. Where it does not answer in time, the message is
acknowledged, for its letter is kept; what is owed is told as soon as the backend answers (`outcome.py`), and
until then nobody waits (`patience.py`). What Celery itself writes in the parent goes the same way
(`apart.py`).

Which way it fails: who dies while he owes a result has told nobody, as before; the letter is kept. Of more
than MOST_OWED results the oldest is not told, and what is owed at the end neither; the log names them.
"""
