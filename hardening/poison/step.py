"""The step of reception about suspects: they start, wait, go to another queue, or end here as a letter.

The last one, after the twins: nobody alive runs what they let pass.
"""

from __future__ import annotations

import logging
from typing import Any

from hardening.shutdown.pools import pool_name
from hardening.twins.work import task_id_of

from .elsewhere import move, say_nowhere
from .policy import Next
from .unaccepted import watch_unaccepted
from .watch import PoisonWatch, poison_for
from .work import is_suspect

__all__ = ["prepare"]

logger = logging.getLogger("hardening")


class PoisonStep:
    """Asks about messages that may have killed a process."""

    def __init__(self, watch: PoisonWatch, *, always: bool = False) -> None:
        self._watch = watch
        self._always = always

    def for_task(self, task: Any) -> PoisonStep | None:
        """The step of one task: none for one that never comes back; one that is allowed a single start is
        asked about each time."""
        if not task.acks_late:
            return None
        return PoisonStep(self._watch, always=self._watch.terms_of(task).limit <= 1)

    def concerns(self, message: Any) -> bool:
        """Delivered before, of a known work, or a retry of one of them."""
        return self._always or is_suspect(message)

    def take(self, arrival: Any) -> bool:
        """Whether it does not start now."""
        watch, message = self._watch, arrival.message
        seen, decision = watch.look(arrival)
        if decision.next is Next.QUARANTINE:
            arrival.request().end_as_poison(seen.case)
            return True
        if decision.next is Next.REFUSE:
            logger.warning(
                "task %s[%s] is not run again: it was given up, and this copy of it is acknowledged",
                arrival.task.name,
                task_id_of(message),
                extra={"task_id": task_id_of(message), "task_name": arrival.task.name},
            )
            watch.twins.leave(message)
            arrival.acknowledge()
            return True
        queue = watch.terms_of(arrival.task).last_try_queue
        if decision.next is Next.ELSEWHERE and queue and move(watch.app, message, queue):
            watch.twins.leave(message)
            arrival.acknowledge()
            return True
        if decision.next is Next.WAIT:
            wait = max(0.0, decision.until - seen.now)
            logger.info(
                "task %s[%s] waits %.1f s: %d of its starts ended with their process",
                arrival.task.name,
                task_id_of(message),
                wait,
                decision.count,
                extra={"task_id": task_id_of(message), "task_name": arrival.task.name},
            )
            watch.twins.held.hold(arrival, seconds=wait)
            return True
        return False


def prepare(consumer: Any) -> PoisonStep:
    """The step of a worker."""
    watch = poison_for(consumer.app)
    watch.worker = consumer.hostname
    # With solo the main loop itself runs it: a refusal any later would be an error there.
    watch.at_hand_over = pool_name(consumer.pool) in ("prefork", "solo")
    watch_unaccepted(consumer.pool)
    say_nowhere(consumer.app, watch.terms)
    return PoisonStep(watch)
