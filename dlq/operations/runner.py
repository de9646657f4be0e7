"""Sends what an operation owes: staged, published with confirm, marked; killed anywhere, it is gone on with.

The argument. There is no transaction over database and broker. The row of a letter is the authority on
whether it may be sent, the item on which message that is, the broker on whether the message exists. The order
is

    1. lease     one UPDATE of the operation: nobody else runs it (see `lease`)
    2. stage     one transaction: letters open -> replaying with the operation's id as token, their items
                 waiting -> staged; the task id and the replay number are on the item since it was made
    3. publish   a batch; `publishing` says of each message whether the broker has it
    4. mark      one transaction: letters replaying -> replayed, their items staged -> sent

for chunks of items, until none waits. Each transaction names the lease of its maker in its first UPDATE.

If the process dies
- before 2 commits: nothing happened. The lease runs out.
- between 2 and 3, in the midst of 3, or before 4 commits: items say staged, and their messages exist or
  not. The next runner begins with those: it publishes the same messages again, with the same task ids and the
  same replay numbers. Of two that are alike a hardened worker runs one to its end and refuses the other (see
  `twins`).
- after 4: nothing is owed for this chunk.
So nothing is lost while the operation exists, and nothing is done twice in effect. That rests on the worker
keeping the success of a replay for longer than a runner is away (12 h): one that was dead for longer may
send what has run; the window is documented.

Two runners at once. The second gets no lease. A runner that was slow (its machine slept, its broker hung) and
whose lease another took, may publish what the other publishes too, which is the same message; its next
transaction hits no row, changes nothing, and it stops. The other marks.

Another operation wants the same letter. The claim is one UPDATE over letters that are open, or whose claim is
older than DLQ["STALE_CLAIM_SECONDS"]: of two one gets it, and the item of the other ends as not sent. Where
an operation lies with staged items for so long that another takes a letter over, that one sends the same
message, and the item of the first ends as claimed by others when it is taken up again.

The broker fails. What it did not confirm goes back: the letter open with the error, the item waiting. The
message may exist all the same: sent again, it is the same one; and its success or its letter closes both
(`outcomes`). After a few tries the operation pauses itself. What cannot be sent by anybody (no queue takes
it, it cannot be read) ends as not sent, and its letter is open.

A pause or a cancel is one UPDATE of the operation's row: the transaction of a runner that stages comes before
it or finds no row. What was staged by then is sent and marked, or taken up by the next runner, whatever state
the operation is in: what was staged is owed.

A chord that runs again as a whole has more to send than its letters: `chord_sending` says how.

A success or a letter may arrive before 4: the item is settled then, the letter is closed, and 4 leaves both.

The result backend takes no part, nor does a route.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from celery import Celery
from django.db.models import Q, QuerySet

from hardening.core.apps import celery_app
from hardening.core.connection import own_connection

from ..conf import database_alias, dlq_settings
from ..errors import CannotUnseal, NoDestination, NotRepaired
from ..models import Operation, OperationItem
from .chord_sending import NotReady, is_chord, send_first
from .clock import DatabaseClock
from .control import pause, record_event
from .drain import gauge_of
from .examine import ItemVerdict
from .lease import Lease, LeaseLost
from .limiter import reserve
from .messages import outgoing
from .outcomes import close_settled, judged_of
from .pace import Pace, Ramp, Rate, Share, pace_of, pause_for, ramp_turn
from .publishing import Outgoing, Published, Publisher, error_text
from .records import record_of
from .staging import Staged, give_back, mark_sent, not_sendable, stage, take_up
from .states import ItemState, Kind, OperationState, PausedBecause

__all__ = ["CHUNK", "SYSTEM", "Runner", "Turn", "run_operation"]

CHUNK = 500
"""Items in one transaction and one batch: what a dying runner holds up."""

SYSTEM = "operation runner"
"""Who did it, where an operation did it by itself."""

_JUDGE_EVERY_SECONDS = 1.0
_WAIT_SECONDS = 0.1
_LONGEST_SLEEP_SECONDS = 1.0
_SLICE_OF_RATE_SECONDS = 0.1
_BROKER_TRIES = 4
_BROKER_PAUSE_SECONDS = 1.0
_log = logging.getLogger(__name__)


class Turn(StrEnum):
    """Why a runner stopped."""

    ENDED = "ended"
    """Nothing is left to be sent, or the operation does not run."""
    WAITING = "waiting"
    """Its pace, or an outcome, must be waited for."""
    TIME_OVER = "time is over"
    HELD = "held"
    """Another runner has it."""
    BROKER = "broker"
    """The broker takes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a runner may take and wait.

    `seconds`: about so long in all; None: until there is nothing to do. `wait`: sleep until the pace allows
    the next ones; else return. `bank_seconds`: see `limiter`. `broker_tries`: so many before the operation
    pauses. `chunk`: at most so many at once.
    """

    seconds: float | None = None
    wait: bool = True
    bank_seconds: float = 0.2
    broker_tries: int = _BROKER_TRIES
    chunk: int | None = None


def run_operation(
    operation_id: UUID,
    *,
    app: Celery | None = None,
    seconds: float | None = None,
    wait: bool = True,
    bank_seconds: float = 0.2,
    publisher: Publisher | None = None,
) -> Turn:
    """Send what may be sent now: for about `seconds`, or until there is nothing to do.

    Without `wait` it returns where the pace, or a ramp's outcomes, must be waited for.
    """
    patience = Patience(seconds=seconds, wait=wait, bank_seconds=bank_seconds)
    # Each step commits by itself: inside a caller's transaction a rollback would reopen what was sent.
    with own_connection(database_alias()):
        if publisher is not None:
            return Runner(operation_id, publisher, patience).run()
        with Publisher(app if app is not None else celery_app()) as own:
            return Runner(operation_id, own, patience).run()


class Runner:
    """One runner's work on one operation."""

    def __init__(
        self,
        operation_id: UUID,
        publisher: Publisher,
        patience: Patience | None = None,
        *,
        lease_seconds: float | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._alias = database_alias()
        self._clock = DatabaseClock(self._alias)
        self._lease_seconds = lease_seconds or dlq_settings().stale_claim_seconds
        self._lease = Lease(operation_id, seconds=self._lease_seconds, alias=self._alias, clock=self._clock)
        self._id = operation_id
        self._publisher = publisher
        self._patience = patience or Patience()
        self._sleep = sleep
        self._until: float | None = None
        self._owes = True
        self._broker_failures = 0
        self._judged_at = float("-inf")
        self._gauge = gauge_of(operation_id)
        self._fanouts: dict[str, bool] = {}

    def run(self) -> Turn:
        """Until there is nothing to do, or the patience is over."""
        if self._patience.seconds is not None:
            self._until = time.monotonic() + self._patience.seconds
        if not self._lease.acquire():
            return Turn.HELD
        try:
            turn = None
            while turn is None:
                turn = self._step()
            return turn
        except LeaseLost:
            return Turn.HELD
        finally:
            self._lease.release()

    def _step(self) -> Turn | None:
        """Do the next thing. None: there may be more."""
        operation = Operation.objects.using(self._alias).get(pk=self._id)
        if self._owes:
            owed = take_up(self._lease, operation, self._chunk)
            if owed:
                return self._send(operation, owed)
            self._owes = False
        if operation.state != OperationState.RUNNING:
            close_settled(self._id)
            return Turn.ENDED
        if self._is_over():
            return Turn.TIME_OVER
        if self._paused_itself(operation):
            return Turn.ENDED
        allowed, wait = self._allowance(operation, pace_of(operation.pace))
        if wait is not None:
            return self._rest(wait)
        # A chord is claimed as a whole, or not at all.
        count = operation.total if is_chord(operation) else allowed
        staged, looked_at = stage(self._lease, operation, count)
        if not looked_at:
            self._all_sent()
            return Turn.ENDED
        return self._send(operation, staged)

    # Sending

    def _send(self, operation: Operation, staged: Sequence[Staged]) -> Turn | None:
        if is_chord(operation):
            not_ready = send_first(operation, self._publisher, is_fanout=self._is_fanout, alias=self._alias)
            if not_ready is not None:
                return self._not_ready(operation, staged, not_ready)
        by_task = {each.task_id: each for each in staged}
        messages, unfit = self._messages(operation, staged)
        self._end_unfit(operation, unfit)
        published = Published()
        try:
            if messages:
                self._publisher.send(messages, published)
        finally:
            # Also when we are interrupted: what was sent is marked before we go.
            mark_sent(self._lease, operation, [by_task[each.task_id] for each in published.sent])
        not_sendable(
            self._lease,
            operation,
            [(by_task[message.task_id], error) for message, error in published.failed],
            ItemVerdict.UNSENDABLE,
        )
        if published.unreachable is None:
            self._broker_failures = 0
            return None
        settled = {each.task_id for each in published.sent} | {each.task_id for each, _ in published.failed}
        rest = [by_task[each.task_id] for each in messages if each.task_id not in settled]
        give_back(self._lease, operation, rest, published.unreachable)
        if published.sent:  # As from a queue that is full: it goes on, as fast as there is room.
            self._broker_failures = 0
        return self._broker_failed(published.unreachable)

    def _not_ready(self, operation: Operation, staged: Sequence[Staged], held: NotReady) -> Turn | None:
        if held.later:
            give_back(self._lease, operation, staged, held.error)
            return self._broker_failed(held.error)
        errors = [(each, held.error) for each in staged]
        not_sendable(self._lease, operation, errors, ItemVerdict.UNSENDABLE)
        return None

    def _messages(
        self, operation: Operation, staged: Sequence[Staged]
    ) -> tuple[list[Outgoing], list[tuple[Staged, str, ItemVerdict]]]:
        messages: list[Outgoing] = []
        unfit: list[tuple[Staged, str, ItemVerdict]] = []
        for each in staged:
            try:
                record = record_of(each.sealed, each.sealed_with, each.letter_id)
                messages.append(
                    outgoing(
                        record,
                        kind=Kind(operation.kind),
                        letter_id=each.letter_id,
                        task_id=each.task_id,
                        queue=operation.queue,
                        is_fanout=self._is_fanout,
                    )
                )
            except CannotUnseal as exc:
                unfit.append((each, str(exc), ItemVerdict.BODY_MISSING))
            except (NoDestination, NotRepaired) as exc:
                unfit.append((each, str(exc), ItemVerdict.UNSENDABLE))
            # Whatever a producer put into its headers: this one cannot be sent, the others can.
            except Exception as exc:
                unfit.append((each, error_text(exc), ItemVerdict.UNSENDABLE))
        return messages, unfit

    def _end_unfit(self, operation: Operation, unfit: Sequence[tuple[Staged, str, ItemVerdict]]) -> None:
        for verdict in {verdict for _, _, verdict in unfit}:
            these = [(each, error) for each, error, said in unfit if said is verdict]
            not_sendable(self._lease, operation, these, verdict)

    def _is_fanout(self, queue: str) -> bool:
        if queue not in self._fanouts:
            queues = self._publisher.app.amqp.queues
            exchange = queues[queue].exchange if queue in queues else None
            self._fanouts[queue] = exchange is not None and exchange.type == "fanout"
        return self._fanouts[queue]

    def _broker_failed(self, why: str) -> Turn | None:
        self._broker_failures += 1
        _log.warning("operation %s: the broker takes nothing: %s", self._id, why)
        if self._broker_failures >= self._patience.broker_tries:
            pause(self._id, by=SYSTEM, because=PausedBecause.BROKER, detail=why)
            return Turn.BROKER
        if not self._patience.wait:
            return Turn.BROKER
        return self._rest(_BROKER_PAUSE_SECONDS * 2 ** (self._broker_failures - 1))

    # Pace

    def _allowance(self, operation: Operation, pace: Pace) -> tuple[int, float | None]:
        """How many may be staged now; or how long to wait before asking again."""
        match pace:
            case Ramp():
                return self._ramp(operation, pace)
            case Rate():
                return self._reserved(operation, pace.per_second)
            case Share():
                return self._share(operation, pace)
        return self._chunk, None

    def _ramp(self, operation: Operation, ramp: Ramp) -> tuple[int, float | None]:
        outstanding = self._items().filter(state=ItemState.SENT).exists()
        turn = ramp_turn(
            ramp, step=operation.step, step_sent=operation.step_sent, outstanding=int(outstanding)
        )
        if turn.advance:
            # Judged once more when the last outcome is here: the step before must have gone well.
            self._judged_at = float("-inf")
            if self._paused_itself(operation):
                return 0, 0.0
            with self._lease.fenced(
                Q(state=OperationState.RUNNING, step=operation.step), step=operation.step + 1, step_sent=0
            ):
                pass
            return 0, 0.0
        return (min(turn.may_send, self._chunk), None) if turn.may_send else (0, _WAIT_SECONDS)

    def _reserved(self, operation: Operation, per_second: float) -> tuple[int, float | None]:
        bank = self._patience.bank_seconds
        count = max(1, min(self._chunk, round(per_second * max(_SLICE_OF_RATE_SECONDS, bank / 2))))
        queues = self._next_queues(operation, count)
        if not queues:
            return 1, None  # Staging finds that none waits.
        waits = [
            reserve(
                queue,
                number,
                per_second,
                now=self._clock.now(),
                alias=self._alias,
                bank_seconds=bank,
                longest_wait=self._longest_wait(),
            )
            for queue, number in queues.items()
        ]
        if any(wait is None for wait in waits):
            return 0, _WAIT_SECONDS
        wait = max(filter(None, waits), default=0.0)
        if wait:
            self._sleep(wait)
        return queues.total(), None

    def _share(self, operation: Operation, share: Share) -> tuple[int, float | None]:
        queues = self._next_queues(operation, 1)
        queue = next(iter(queues), None)
        if queue is None:
            return 1, None
        rate = self._gauge.rate(self._publisher, queue, share.percent, sent=self._sent_count())
        return self._reserved(operation, rate)

    def _next_queues(self, operation: Operation, count: int) -> Counter[str]:
        """Where the next waiting items go, as far as their rows tell it."""
        waiting = self._items().filter(state=ItemState.WAITING).order_by("position")
        names = list(waiting.values_list("letter__queue", flat=True)[:count])
        return Counter({operation.queue: len(names)}) if operation.queue and names else Counter(names)

    def _sent_count(self) -> int:
        return int(self._items().filter(sent_at__isnull=False).count())

    # The operation as a whole

    def _paused_itself(self, operation: Operation) -> bool:
        quiet = operation.pause_above_percent >= 100 and not operation.pause_on_same_cause
        if quiet or time.monotonic() - self._judged_at < _JUDGE_EVERY_SECONDS:
            return False
        self._judged_at = time.monotonic()
        judged = judged_of(operation)
        because = pause_for(
            judged,
            above_percent=operation.pause_above_percent,
            on_same_cause=operation.pause_on_same_cause,
        )
        # With nothing left to be sent there is nothing to stop: it goes on to its end.
        if because is None or not self._items().filter(state=ItemState.WAITING).exists():
            return False
        detail = (
            f"{judged.came_back} of {judged.known} came back, {judged.same_cause} of them with the same "
            f"cause; {judged.lost} were lost"
        )
        return pause(self._id, by=SYSTEM, because=because, detail=detail)

    def _all_sent(self) -> None:
        with self._lease.fenced(
            Q(state=OperationState.RUNNING), state=OperationState.SETTLING, sent_all_at=self._clock.now()
        ):
            record_event(self._id, by=SYSTEM, what="all sent", detail={}, alias=self._alias)
        close_settled(self._id)

    def _rest(self, seconds: float) -> Turn | None:
        if not self._patience.wait and seconds > 0:
            return Turn.WAITING
        if self._is_over():
            return Turn.TIME_OVER
        if self._until is not None:
            seconds = min(seconds, max(0.0, self._until - time.monotonic()))
        if seconds > 0:
            self._lease.renew()
            self._sleep(seconds)
        return None

    def _longest_wait(self) -> float:
        """Nobody sleeps through the end of a turn, a pause or another's start."""
        if not self._patience.wait:
            return 0.0
        left = _LONGEST_SLEEP_SECONDS if self._until is None else self._until - time.monotonic()
        return max(0.0, min(left, _LONGEST_SLEEP_SECONDS, self._lease_seconds / 3))

    @property
    def _chunk(self) -> int:
        return min(CHUNK, self._patience.chunk or CHUNK)

    def _is_over(self) -> bool:
        return self._until is not None and time.monotonic() >= self._until

    def _items(self) -> QuerySet[OperationItem]:
        return OperationItem.objects.using(self._alias).filter(operation_id=self._id)
