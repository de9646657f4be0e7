"""What Redis itself would lose: a worker says at its start what no lease can make good.

Leases bring back what a dead worker held, because Redis has it. A queue that Redis forgets, at a restart
without an append-only file, by eviction, or at a fail-over to a replica that lags behind, is gone: this is
looked up once and said, and stops nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from celery import bootsteps
from redis.exceptions import RedisError

from hardening.core.findings import Finding, Level

__all__ = ["Durability", "durability_findings"]

logger = logging.getLogger("hardening")

CODE = "CH029"


def durability_findings(facts: Mapping[str, Any]) -> list[Finding]:
    """Findings about what Redis answers to INFO. What it does not say is no finding."""
    findings = []
    if str(facts.get("aof_enabled", 1)) == "0":
        findings.append(
            Finding(
                code=CODE,
                level=Level.WARNING,
                what="Redis keeps no append-only file: a restart loses the queues, or what came after the "
                "last snapshot",
                where="appendonly of the Redis that is the broker",
                remedy="Set `appendonly yes`, and `appendfsync everysec` or `always`.",
            )
        )
    policy = str(facts.get("maxmemory_policy", "noeviction"))
    if policy != "noeviction" and str(facts.get("maxmemory", 0)) != "0":
        findings.append(
            Finding(
                code=CODE,
                level=Level.WARNING,
                what=f"Redis evicts keys when it is full ({policy}), and each of its queues is one key",
                where="maxmemory-policy of the Redis that is the broker",
                remedy="Set `maxmemory-policy noeviction`: a full Redis then refuses, and nothing is lost.",
            )
        )
    replicated = facts.get("role") == "master" and int(facts.get("connected_slaves") or 0) > 0
    if replicated and "min_slaves_good_slaves" not in facts:  # Told only where the setting is there.
        findings.append(
            Finding(
                code=CODE,
                level=Level.WARNING,
                what="Redis takes messages that no replica has: a fail-over may lose what was sent last",
                where="min-replicas-to-write of the Redis that is the broker",
                remedy="Set `min-replicas-to-write 1` and `min-replicas-max-lag 10`: that bounds it.",
            )
        )
    return findings


class Durability(bootsteps.StartStopStep):
    """Looks once in a worker's life. Which way it fails: a Redis that does not answer is not judged."""

    requires = ("hardening.leases.step:Leases",)

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        super().__init__(consumer, **kwargs)
        self._looked = False

    def include_if(self, consumer: Any) -> bool:
        """Only where messages are leased."""
        return bool(getattr(consumer, "leased", False))

    def start(self, consumer: Any) -> None:
        """Called again with each connection."""
        if self._looked:
            return
        try:
            facts = consumer.holdings.store.client.info()
        except RedisError as exc:
            logger.info("Redis does not say what it keeps: %s", type(exc).__name__)
            return
        self._looked = True
        for finding in durability_findings(facts):
            logger.warning("%s: %s. %s", finding.code, finding.what, finding.remedy)
