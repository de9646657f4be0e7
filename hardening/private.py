"""Every private symbol of Celery and kombu that we touch, and the versions that we know."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version

from .core.findings import Finding, Level

__all__ = [
    "CHORD_CLAIM_SCRIPT",
    "CHORD_KEYS",
    "KNOWN_VERSIONS",
    "PRIVATE_SYMBOLS",
    "celery_version",
    "version_findings",
]

KNOWN_VERSIONS: dict[str, tuple[tuple[int, int], ...]] = {
    "celery": ((5, 6), (5, 7)),
    "kombu": ((5, 7),),
}

PRIVATE_SYMBOLS: tuple[tuple[str, str, str], ...] = (
    ("celery._state", "connect_on_app_finalize", "apps that are created after Django's start"),
    ("celery._state", "_get_active_apps", "apps that exist when Django starts"),
    ("celery._state", "default_app", "telling a project's app from Celery's brokerless fall-back"),
    ("celery.app.task", "Task.__trace__", "seeing an error of the result backend around a task's end"),
    ("celery.app.task", "Task.request_stack", "telling a worker's call of a task from a direct one"),
    ("celery.app.task", "Task.annotate", "reaching every task when it is bound"),
    ("celery.app.task", "Context._protected", "telling a task's own call from one that it makes itself"),
    ("celery.app.task", "Task.signature_from_request", "putting a message back without counting an attempt"),
    ("celery.app.autoretry", "add_autoretry_behaviour", "telling autoretry_for from a retry by hand"),
    ("celery.app.trace", "trace_ok_t", "answering the worker in place of a broken trace"),
    ("celery.app.trace", "TraceInfo", "answering the worker in place of a broken trace"),
    ("celery.worker.request", "Request._context", "errbacks told once"),
    ("celery.worker.request", "Request._announce_revoked", "expired tasks that are kept before they end"),
    ("celery._state", "push_current_task", "the body of a chord as a child of its last member"),
    ("celery._state", "pop_current_task", "the body of a chord as a child of its last member"),
    ("celery.backends.base", "Backend._call_task_errbacks", "errbacks of messages that never become a task"),
    ("celery.worker.request", "Request._payload", "the letter of a task that kills its process"),
    ("celery.worker.request", "Request._already_cancelled", "telling a death from an end that was asked for"),
    ("celery.worker.request", "Request._already_revoked", "telling a death from an end that was asked for"),
    ("celery.worker.state", "should_terminate", "telling a death from a cold shutdown"),
    ("celery.worker.strategy", "hybrid_to_proto2", "ending a message that does not run any more"),
    ("celery.worker.strategy", "proto1_to_proto2", "ending a message that does not run any more"),
    ("celery.concurrency.asynpool", "AsynPool.on_partial_read", "children that die while they read a task"),
    ("celery.concurrency.asynpool", "AsynPool._track_child_process", "children that die at a reconnect"),
    ("celery.worker.consumer.consumer", "Consumer.loop_args", "children that die at a reconnect"),
    ("celery.concurrency.asynpool", "ResultHandler._recv_message", "results half read at a reconnect"),
    ("celery.concurrency.asynpool", "AsynPool._create_write_handlers", "jobs half written at a reconnect"),
    ("billiard.pool", "Pool.mark_as_worker_lost", "children that die while they read a task"),
    ("billiard.pool", "ApplyResult._ack", "children that die while they read a task"),
    ("celery.worker.request", "Request._on_ack", "a running request takes over its redelivery"),
    (
        "celery.worker.request",
        "Request._on_reject",
        "a running request takes over its redelivery",
    ),
    (
        "celery.concurrency.asynpool",
        "ResultHandler.handle_event",
        "what children run as a connection breaks",
    ),
    (
        "celery.worker.consumer.consumer",
        "Consumer._restore_prefetch_count_after_connection_restart",
        "green pools whose socket is read by one greenlet",
    ),
    (
        "celery.worker.consumer.consumer",
        "Consumer._new_prefetch_count",
        "credits lent to messages that are held back",
    ),
    (
        "celery.worker.consumer.consumer",
        "Consumer.max_prefetch_count",
        "the prefetch count of a green pool after a reconnect",
    ),
    ("celery.concurrency.gevent", "TaskPool._pool", "how many greenlets a pool has room for"),
    ("celery.worker.consumer.consumer", "Consumer.connect", "leases of the connection that takes tasks"),
    ("celery.concurrency.asynpool", "AsynPool._on_hard_timeout", "time limits that outlive a connection"),
    ("celery.concurrency.asynpool", "AsynPool._on_soft_timeout", "time limits that outlive a connection"),
    ("celery.worker.state", "active_requests", "copies of a message in one worker"),
    ("celery.worker.state", "requests", "copies of a message in one worker"),
    ("celery.worker.state", "successful_requests", "successes whose acknowledgement came late"),
    ("celery.worker.loops", "synloop", "gevent workers that do not wait for events after each message"),
    ("celery.worker.consumer.consumer", "Consumer.call_soon", "gevent workers that acknowledge at once"),
    ("celery.worker.state", "revoked.maxlen", "room for the revokes that outlive a worker"),
    ("celery.worker.state", "revoked.expires", "room for the revokes that outlive a worker"),
    ("celery.worker.state", "revoked_stamps", "revoked stamps that outlive a worker"),
    ("celery.worker.state", "task_ready", "releasing a request whose message is held"),
    ("kombu.transport.virtual.base", "Channel._lookup", "the queue to which a delayed message goes back"),
    ("kombu.transport.virtual.base", "Channel._get_message_priority", "the list of a delayed message"),
    ("kombu.transport.redis", "Channel._q_for_pri", "the list of a delayed message"),
    ("kombu.utils.functional", "sleep", "green workers that wait for their broker without stopping"),
    ("kombu.transport.redis", "Channel._get_pool", "connections of the worker's own to the broker's Redis"),
    ("kombu.transport.redis", "Channel._brpop_read", "leasing what was popped without the script"),
    ("kombu.transport.redis", "Channel._create_client", "one connection for each list that is watched"),
    ("kombu.transport.redis", "Channel._on_connection_disconnect", "noticing that a watched list is not"),
    ("kombu.transport.redis", "Channel._flush_brpop_reauth", "credentials that change"),
    ("kombu.transport.redis", "MultiChannelPoller._register_BRPOP", "taking messages by a script"),
    ("kombu.transport.redis", "MultiChannelPoller._client_registered", "taking messages by a script"),
    ("kombu.transport.redis", "MultiChannelPoller._register", "taking messages by a script"),
    ("kombu.transport.redis", "MultiChannelPoller.on_readable", "an answer that comes without credit"),
    ("kombu.transport.redis", "QoS.restore_unacked_once", "giving nothing back when a connection breaks"),
    ("celery.worker.consumer.consumer", "Consumer.on_close", "dropping nothing when a connection breaks"),
    (
        "celery.worker.consumer.consumer",
        "Consumer.on_connection_error_after_connected",
        "giving nothing back when a connection breaks",
    ),
    ("celery.worker.consumer.consumer", "Consumer._limit_post_eta", "credit of what waits for its time"),
    ("celery.apps.worker", "_shutdown_handler", "telling Celery's signal handlers by their names"),
    ("celery.apps.worker", "safe_say", "saying from a signal handler that the worker stops"),
    ("celery.worker.state", "should_stop", "draining before Celery stops"),
    ("celery.worker.state", "reserved_requests", "giving back what has not begun"),
    ("celery.worker.request", "Request._apply_result", "telling what a pool was given from what waits"),
    ("celery.concurrency.prefork", "TaskPool.on_stop", "ending a pool whose tasks cannot be cut"),
    ("kombu.messaging", "Consumer._receive_callback", "refusing messages that were on their way"),
    ("kombu.transport.redis", "QoS.restore_by_tag", "giving a message back to the head of its queue"),
)

CHORD_CLAIM_SCRIPT = "CHORD_PART_RETURN_LUA"
"""In celery.backends.redis where a chord's body is claimed before it is published: from Celery 5.7 on."""

CHORD_KEYS = (".j", ".t", ".s", ".d", ".c")
"""How the keys of a chord on Redis end: results, what its size grew by, size, ids of the members that are
counted, claim of who publishes the body. Also `RedisBackend._chord_zset`: whether the results are a sorted
set. All in the contract test of chords, and not in the list above: their module needs redis-py."""


def celery_version() -> tuple[int, int]:
    """Major and minor version of the Celery that is installed."""
    return _minor("celery")


def _minor(package: str) -> tuple[int, int]:
    major, minor = version(package).split(".")[:2]
    return int(major), int(minor)


_REDIS = "kombu.transport.redis"


def version_findings() -> list[Finding]:
    """Versions that we have not read, and private symbols that are gone: each stops a worker."""
    findings = []
    for package, known in KNOWN_VERSIONS.items():
        if _minor(package) not in known:
            supported = ", ".join(f"{a}.{b}" for a, b in known)
            findings.append(
                Finding(
                    code="CH004",
                    level=Level.ERROR,
                    what=f"{package} {version(package)} is not known to this release (known: {supported})",
                    where=f"the installed {package}",
                    remedy=f"Install a known {package}, or a newer celery-hardening.",
                )
            )
    for module, path, why in PRIVATE_SYMBOLS:
        if not _exists(module, path) and not _is_unused(module):
            findings.append(
                Finding(
                    code="CH004",
                    level=Level.ERROR,
                    what=f"{module}.{path} does not exist in this Celery; it is needed for {why}",
                    where=f"the installed {module.split('.')[0]}",
                    remedy="Install a known version of Celery, or a newer celery-hardening.",
                )
            )
    return findings


def _is_unused(module: str) -> bool:
    """Whether the Redis transport cannot be loaded: what it needs is not installed, as on RabbitMQ alone."""
    if module != _REDIS:
        return False
    try:
        import_module(module)
    except (ImportError, AttributeError):  # Without redis-py it is None there, and has no classes.
        return True
    return False


def _exists(module: str, path: str) -> bool:
    try:
        found: object = import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError):
        return False
    return True
