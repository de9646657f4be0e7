"""The model of leases on Redis: who holds a message, and what becomes of it when anything dies or stops.

One or two messages, two workers, one Redis. Each move is as atomic as what it stands for: a script of
Redis, or one step of a process between two of its calls. Between any two moves anybody may die.

Where a move is found in the code, below `hardening/`; the scripts are in `leases/scripts.py`:

| move                        | file                | script    | what it stands for               |
|-----------------------------|---------------------|-----------|----------------------------------|
| publishes                   | kombu's, unchanged  | LPUSH     | a producer's message is accepted |
| takes                       | leases/transport.py | TAKE      | off the list and leased, in one  |
| pops, leases what it popped | leases/transport.py | HOLD      | without ATOMIC_TAKE: two steps   |
| renews                      | leases/keeper.py    | RENEW     | there, given to others, or gone  |
| holds ... again             | leases/holdings.py  | HOLD      | what Redis lost, from memory     |
| sees that ... ran out       | leases/keeper.py    | EXPIRED   | a sweep, first half              |
| gives ... to others         | leases/keeper.py    | RESTORE   | a sweep, second half             |
| marks                       | twins/records.py    | a swap    | a redelivered one may run here   |
| asks for the success of     | twins/records.py    | a read    | or has run already               |
| starts, ends                | Celery's            |           | the body                         |
| records the success of      | twins/watch.py      | a swap    | before the acknowledgement       |
| acknowledges                | leases/holdings.py  | SETTLE    | 1 in time, -1 late, 0 gone       |
| gives back                  | leases/holdings.py  | GIVE_BACK | a clean shutdown                 |
| loses its connection        | leases/consumer.py  |           | nothing goes back or is dropped  |

Time is a tick, and a lease lasts LEASE ticks. Whoever lives, runs and reaches Redis renews within each
tick; that is what "a lease holds three renewals" is for. Deadlines are Redis's own, so they pass while it
is down.

Failures, out of a common budget: a worker is killed; it is stopped (SIGSTOP) and may wake up later; it is
cut off from Redis for as long as it takes; its connection breaks; it is told to shut down; Redis is down;
it starts anew with nothing; its leases vanish; the answer to a script is lost, although it was done.

What the model leaves out: bodies that fail (their letter or their retry is durable before the
acknowledgement, see `docs/explanation/retries.md`); of fail-overs, all but those that forget a take; a death
between `holds again` and the second look at the ledger, which needs lost data, an acknowledgement in that
very moment and a death; the moment between the answer about a success and the start.

Each of the `Rules` can be left out. The model is then broken, and the checker shows how.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.model.checker import Move

__all__ = ["INVARIANTS", "LEASE", "Rules", "State", "done", "mirrored", "moves_of", "show", "start_of"]

LEASE = 2
NONE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the design keeps to. All of them together keep every claim; each has a claim that needs it."""

    rechecks_deadline: bool = True
    """RESTORE looks at the deadline again: the holder may have renewed since EXPIRED."""

    takes_in_one_step: bool = True
    """TAKE pops and leases at once."""

    fresh_tags: bool = True
    """Each delivery has a tag of its own, also that of a message that came before."""

    keeps_on_reconnect: bool = True
    """A closed connection gives nothing back."""

    clock_ahead: int = 0
    """By how many ticks worker B's clock is ahead. Zero: deadlines are judged by Redis's clock."""

    holds_again: bool = True
    """What Redis has lost is leased anew by its holder."""

    asks_ledger_before_holding: bool = True
    """Not what was acknowledged meanwhile."""

    records_success: bool = True
    """The success of a message that may have a twin is recorded before it is acknowledged."""

    marks_before_asking: bool = True
    """A redelivered message takes its running mark first, and asks for a success then."""

    knows_its_own_copies: bool = True
    """A worker that runs a message holds back a second delivery of it, although the mark is its own."""

    marks_run_out: bool = True
    """A mark that nobody renews ends, as a lease does."""

    waits_for_store: bool = True
    """A redelivered message is not started while Redis, which has marks and successes, is not reached."""

    sweeps_later_after_outage: bool = True
    """After Redis was away, nothing is given to others before its holders could renew."""

    gives_back_from_memory: bool = True
    """GIVE_BACK puts a message back that Redis has lost, and leaves a note that it did."""

    drops_what_was_lost: bool = True
    """What was given to others and has not begun here does not begin any more."""

    looks_at_own_clock: bool = True
    """A worker that could not renew for a whole lease renews before it starts anything."""


# How far a delivery is. Plain numbers: states are hashed a million times.
TAKEN, MARKED, RUNNING, ENDED, RECORDED, LATE, DUPLICATE = range(7)
_STAGES = ("taken", "marked", "running", "ended", "recorded", "late", "duplicate")
_OWES_ACK = (ENDED, RECORDED, LATE, DUPLICATE)


class Envelope(NamedTuple):
    message: int
    redelivered: bool
    tag: int = NONE


class Lease(NamedTuple):
    tag: int
    message: int
    left: int


class Mark(NamedTuple):
    message: int
    worker: int
    tag: int
    left: int


class Copy(NamedTuple):
    """One delivery in a worker's memory."""

    tag: int
    message: int
    stage: int
    redelivered: bool
    lost: bool = False
    trust: int = LEASE
    """Ticks until the lease has run out by the worker's own clock."""

    overslept: bool = False
    """It ran out while the worker was stopped or cut off. Nobody knows; only claims may look."""

    vanished: bool = False
    """Redis lost it, and the worker has not had the chance to find out. Likewise."""

    @property
    def concerned(self) -> bool:
        return self.redelivered or self.lost


NOTHING = Envelope(NONE, False)


class Worker(NamedTuple):
    copies: tuple[Copy, ...] = ()
    dead: bool = False
    paused: bool = False
    stopping: bool = False
    link: str = "on"
    """"on"; "lost": it connects again at once; "cut": it cannot."""

    renewed: bool = False
    sweeping: int = NONE
    holding: tuple[tuple[int, int], ...] = ()
    """Tags and messages that the keeper is about to hold again."""

    popped: Envelope = NOTHING

    @property
    def awake(self) -> bool:
        return not (self.dead or self.paused)


class Redis(NamedTuple):
    up: bool = True
    quiet: int = 0
    queue: tuple[Envelope, ...] = ()
    """The last one is the next to be taken."""

    leases: tuple[Lease, ...] = ()
    returned: tuple[int, ...] = ()
    marks: tuple[Mark, ...] = ()
    successes: tuple[int, ...] = ()


class State(NamedTuple):
    redis: Redis
    workers: tuple[Worker, Worker]
    budget: int
    messages: int
    unpublished: int
    ended: frozenset[int] = frozenset()
    """Bodies that ran to their end, whatever anybody knows of it."""

    settled: frozenset[int] = frozenset()
    """The holder has done all that it has to: acknowledged or recorded."""

    redis_lost: frozenset[int] = frozenset()
    """Messages of which Redis had the only copy, and lost it."""

    forgot: bool = False
    """Redis lost marks, successes or notes: nothing more is promised of single runs."""

    ran_beside: bool = False
    ran_again: bool = False


def mirrored(state: State) -> State:
    """The smaller of a state and its mirror image, in which A and B have changed places."""
    first, second = state.workers
    if first <= second:
        return state
    redis = state.redis
    if redis.marks:
        marks = tuple(sorted(mark._replace(worker=1 - mark.worker) for mark in redis.marks))
        redis = redis._replace(marks=marks)
    return state._replace(workers=(second, first), redis=redis)


def start_of(*, messages: int = 1, failures: int = 2) -> State:
    return State(Redis(), (Worker(), Worker()), failures, messages, messages)


# Looking and changing.


def _both(workers: tuple[Worker, Worker], change: Callable[[Worker], Worker]) -> tuple[Worker, Worker]:
    return change(workers[0]), change(workers[1])


def _lease(redis: Redis, tag: int) -> Lease | None:
    return next((lease for lease in redis.leases if lease.tag == tag), None)


def _mark(redis: Redis, message: int) -> Mark | None:
    return next((mark for mark in redis.marks if mark.message == message), None)


def _leased(redis: Redis, lease: Lease) -> Redis:
    rest = [other for other in redis.leases if other.tag != lease.tag]
    return redis._replace(leases=tuple(sorted([*rest, lease])))


def _unleased(redis: Redis, tag: int) -> Redis:
    return redis._replace(leases=tuple(lease for lease in redis.leases if lease.tag != tag))


def _marked(redis: Redis, mark: Mark) -> Redis:
    rest = [other for other in redis.marks if other.message != mark.message]
    return redis._replace(marks=tuple(sorted([*rest, mark])))


def _unmarked(redis: Redis, worker: int, tag: int) -> Redis:
    rest = tuple(mark for mark in redis.marks if (mark.worker, mark.tag) != (worker, tag))
    return redis._replace(marks=rest)


def _noted(redis: Redis, tag: int) -> Redis:
    return redis._replace(returned=tuple(sorted({*redis.returned, tag})))


def _fresh_tag(state: State) -> int:
    """A random one: the model reuses the smallest that nobody can remember, to stay finite."""
    used = {lease.tag for lease in state.redis.leases} | {mark.tag for mark in state.redis.marks}
    used |= set(state.redis.returned) | {envelope.tag for envelope in state.redis.queue}
    for worker in state.workers:
        used |= {copy.tag for copy in worker.copies} | {tag for tag, _ in worker.holding} | {worker.sweeping}
    return next(tag for tag in range(len(used) + 1) if tag not in used)


class _Turn:
    """One worker about to move."""

    def __init__(self, state: State, number: int, rules: Rules, prefetch: int) -> None:
        self.state = state
        self.redis = state.redis
        self.number = number
        self.name = "AB"[number]
        self.me = state.workers[number]
        self.rules = rules
        self.prefetch = prefetch
        self.reaches_redis = self.redis.up and self.me.link == "on"

    def to(
        self, label: str, *, me: Worker | None = None, redis: Redis | None = None, **state: Any
    ) -> Move[State]:
        return _move(self, f"{self.name} {label}", False, me, redis, state)

    def fails(
        self, label: str, *, me: Worker | None = None, redis: Redis | None = None, **state: Any
    ) -> Move[State]:
        return _move(self, f"! {self.name} {label}", True, me, redis, state)

    def with_copy(self, old: Copy, new: Copy | None, **changes: Any) -> Worker:
        copies = tuple(new if copy is old else copy for copy in self.me.copies)
        return self.me._replace(copies=tuple(copy for copy in copies if copy is not None), **changes)


def _move(
    turn: _Turn, label: str, failure: bool, me: Worker | None, redis: Redis | None, changes: dict[str, Any]
) -> Move[State]:
    state = turn.state
    workers = state.workers
    if me is not None:
        workers = (me, workers[1]) if turn.number == 0 else (workers[0], me)
    redis = _with_useful_notes(turn.redis if redis is None else redis, workers)
    state = State(redis, workers, state.budget - failure, *state[3:])
    return Move(label, state._replace(**changes) if changes else state, failure)


def _with_useful_notes(redis: Redis, workers: tuple[Worker, Worker]) -> Redis:
    """A note about a tag that nobody holds any more is never asked for."""
    if not redis.returned:
        return redis
    known = {copy.tag for worker in workers for copy in worker.copies}
    known |= {tag for worker in workers for tag, _ in worker.holding}
    return redis._replace(returned=tuple(tag for tag in redis.returned if tag in known))


# The moves.


def moves_of(
    rules: Rules, *, prefetch: int = 2, fail_over: bool = False
) -> Callable[[State], Iterator[Move[State]]]:
    """All that can happen next, with workers that hold at most `prefetch` deliveries each.

    With `fail_over` Redis may also go on from a moment before the last take.
    """

    def moves(state: State) -> Iterator[Move[State]]:
        yield from _world(state, rules)
        if fail_over and state.budget and state.redis.up:
            yield from _fail_overs(state)
        for number in (0, 1):
            turn = _Turn(state, number, rules, prefetch)
            if turn.me.dead:
                continue
            if state.budget:
                yield from _mishaps(turn)
            if turn.me.paused:
                yield turn.to("wakes up", me=turn.me._replace(paused=False))
                continue
            yield from _connecting(turn)
            yield from _taking(turn)
            yield from _keeping(turn)
            for copy in turn.me.copies:
                yield from _working(turn, copy)
                if turn.me.stopping:
                    yield from _giving_back(turn, copy)
            if turn.me.stopping and not turn.me.copies and turn.me.popped == NOTHING:
                yield turn.to("is gone", me=Worker(dead=True))

    return moves


def _world(state: State, rules: Rules) -> Iterator[Move[State]]:
    redis = state.redis
    if redis.up and state.unpublished:
        message = state.unpublished - 1
        queue = (Envelope(message, False), *redis.queue)
        yield Move(
            "a producer publishes", state._replace(redis=redis._replace(queue=queue), unpublished=message)
        )
    if _time_may_pass(state):
        yield Move("a tick passes", _after_a_tick(state, rules))
    if not redis.up:
        yield Move("Redis is up", state._replace(redis=redis._replace(up=True, quiet=1)))
    elif state.budget:
        broken = _both(state.workers, _disconnected)
        down = state._replace(redis=redis._replace(up=False), workers=broken, budget=state.budget - 1)
        yield Move("! Redis is down", down, True)
        yield Move("! Redis starts anew, with nothing", _emptied(down), True)
        if redis.leases:
            yield Move("! the leases vanish", _without_leases(state._replace(budget=state.budget - 1)), True)


def _time_may_pass(state: State) -> bool:
    """Not before everybody who can has renewed."""
    if not state.redis.up:
        return True
    for worker in state.workers:
        if worker.awake and worker.link != "cut":
            if worker.link == "lost" or worker.holding:
                return False
            if worker.copies and not worker.renewed:
                return False
    return True


def _after_a_tick(state: State, rules: Rules) -> State:
    redis = state.redis
    leases = tuple(lease._replace(left=max(0, lease.left - 1)) for lease in redis.leases)
    marks = redis.marks
    if rules.marks_run_out:
        marks = tuple(mark._replace(left=mark.left - 1) for mark in marks if mark.left > 1)
    redis = redis._replace(leases=leases, marks=marks, quiet=0 if redis.up else redis.quiet)
    return state._replace(redis=redis, workers=_both(state.workers, _a_tick_older))


def _a_tick_older(worker: Worker) -> Worker:
    kept_away = worker.paused or worker.link == "cut"
    return worker._replace(copies=tuple(_aged(copy, kept_away) for copy in worker.copies), renewed=False)


def _aged(copy: Copy, kept_away: bool) -> Copy:
    if copy.stage in _OWES_ACK:
        return copy
    trust = max(0, copy.trust - 1)
    return copy._replace(trust=trust, overslept=copy.overslept or (kept_away and not trust))


def _disconnected(worker: Worker) -> Worker:
    return worker._replace(link="lost") if not worker.dead and worker.link == "on" else worker


def _without_leases(state: State) -> State:
    """The holders still know; what nobody holds is gone for good."""
    gone = {lease.tag for lease in state.redis.leases}
    held = {copy.tag for worker in state.workers for copy in worker.copies if not copy.lost}
    orphans = {lease.message for lease in state.redis.leases if lease.tag not in held}
    return state._replace(
        redis=state.redis._replace(leases=()),
        workers=_both(state.workers, lambda worker: _bereft(worker, gone)),
        redis_lost=state.redis_lost | orphans,
    )


def _bereft(worker: Worker, gone: Set[int]) -> Worker:
    copies = worker.copies
    if not any(copy.tag in gone for copy in copies):
        return worker
    return worker._replace(copies=tuple(_vanished(copy) if copy.tag in gone else copy for copy in copies))


def _vanished(copy: Copy) -> Copy:
    return copy if copy.lost or copy.stage in _OWES_ACK else copy._replace(vanished=True)


def _emptied(state: State) -> State:
    """Redis as it was first. It was away for no time, but every connection is broken."""
    queued = {envelope.message for envelope in state.redis.queue}
    state = _without_leases(state)
    redis = state.redis
    forgot = bool(redis.returned or redis.marks or redis.successes)
    held = {copy.tag for worker in state.workers for copy in worker.copies}
    return state._replace(
        redis=Redis(quiet=1),
        # Also one whose note is gone: its holder cannot find out that others have it.
        workers=_both(state.workers, lambda worker: _bereft(worker, held)),
        redis_lost=state.redis_lost | queued,
        forgot=state.forgot or forgot,
    )


def _fail_overs(state: State) -> Iterator[Move[State]]:
    for lease in state.redis.leases:
        if lease.left == LEASE:
            yield Move(f"! a fail-over forgets that {lease.tag} was taken", _untaken(state, lease), True)


def _untaken(state: State, lease: Lease) -> State:
    """As it was before; nothing says that the message was delivered already."""
    redis = _unleased(state.redis, lease.tag)
    redis = redis._replace(quiet=1, queue=(*redis.queue, Envelope(lease.message, False)))
    workers = _both(state.workers, lambda worker: _disconnected(_bereft(worker, {lease.tag})))
    return state._replace(redis=redis, workers=workers, budget=state.budget - 1)


def _mishaps(turn: _Turn) -> Iterator[Move[State]]:
    me = turn.me
    gone = {copy.message for copy in me.copies if copy.vanished}
    yield turn.fails("is killed", me=Worker(dead=True), redis_lost=turn.state.redis_lost | gone)
    if me.paused:
        return
    yield turn.fails("is stopped", me=me._replace(paused=True))
    if me.link != "cut":
        yield turn.fails("is cut off from Redis", me=me._replace(link="cut"))
    if turn.reaches_redis:
        yield turn.fails("loses its connection", me=me._replace(link="lost"))
    if not me.stopping:
        yield turn.fails("is told to shut down", me=me._replace(stopping=True))


def _connecting(turn: _Turn) -> Iterator[Move[State]]:
    me = turn.me
    if not turn.redis.up or me.link == "on":
        return
    if turn.rules.keeps_on_reconnect:
        yield turn.to("connects again", me=me._replace(link="on"))
        return
    redis, copies = turn.redis, []
    for copy in me.copies:
        if _lease(redis, copy.tag) is not None:
            redis = _unleased(redis, copy.tag)
            redis = redis._replace(queue=(*redis.queue, Envelope(copy.message, True)))
        if copy.stage >= RUNNING:
            copies.append(copy._replace(lost=True))
    yield turn.to(
        "connects again, and gives back", me=me._replace(link="on", copies=tuple(copies)), redis=redis
    )


def _taking(turn: _Turn) -> Iterator[Move[State]]:
    me, redis = turn.me, turn.redis
    if not turn.reaches_redis or me.stopping:
        return
    if me.popped != NOTHING:
        yield _taken(turn, "leases what it popped", me.popped, redis, me._replace(popped=NOTHING))
        return
    if not redis.queue or len(me.copies) >= turn.prefetch:
        return
    envelope, rest = redis.queue[-1], redis._replace(queue=redis.queue[:-1])
    if not turn.rules.takes_in_one_step:
        yield turn.to("pops", me=me._replace(popped=envelope), redis=rest)
        return
    yield _taken(turn, "takes", envelope, rest, me)
    if turn.state.budget:
        leased = _leased(rest, Lease(_fresh_tag(turn.state), envelope.message, LEASE))
        yield turn.fails("takes, and the answer is lost", me=me._replace(link="lost"), redis=leased)


def _taken(turn: _Turn, label: str, envelope: Envelope, redis: Redis, me: Worker) -> Move[State]:
    tag = _fresh_tag(turn.state)
    if not turn.rules.fresh_tags and envelope.tag != NONE:
        tag = envelope.tag
        redis = redis._replace(returned=tuple(other for other in redis.returned if other != tag))
    copy = Copy(tag, envelope.message, TAKEN, envelope.redelivered)
    redis = _leased(redis, Lease(tag, envelope.message, LEASE))
    return turn.to(
        f"{label} message {envelope.message} as {tag}", me=me._replace(copies=(*me.copies, copy)), redis=redis
    )


def _keeping(turn: _Turn) -> Iterator[Move[State]]:
    """What the keeper's thread does."""
    me, redis, rules = turn.me, turn.redis, turn.rules
    if not turn.reaches_redis:
        return
    if me.copies and not me.renewed:
        yield _renewed(turn)
    for tag, message in me.holding:
        yield _held_again(turn, tag, message)
    early = rules.clock_ahead if turn.number == 1 else 0
    quiet = redis.quiet and rules.sweeps_later_after_outage
    if me.sweeping == NONE:
        for lease in () if quiet else redis.leases:
            if lease.left <= early:
                yield turn.to(f"sees that {lease.tag} ran out", me=me._replace(sweeping=lease.tag))
        return
    found = _lease(redis, me.sweeping)
    if found is None or (rules.rechecks_deadline and (found.left > early or quiet)):
        yield turn.to("finds nothing to give to others", me=me._replace(sweeping=NONE))
        return
    envelope = Envelope(found.message, True, NONE if rules.fresh_tags else found.tag)
    freed = _noted(_unleased(redis, found.tag), found.tag)
    freed = freed._replace(queue=(*redis.queue, envelope))
    yield turn.to(f"gives {found.tag} to others", me=me._replace(sweeping=NONE), redis=freed)


def _renewed(turn: _Turn) -> Move[State]:
    """RENEW, and what the main loop makes of its news."""
    me, redis, rules = turn.me, turn.redis, turn.rules
    copies, holding = [], set(me.holding)
    for copy in me.copies:
        if copy.lost:
            redis = _mark_kept(turn, redis, copy)
            copies.append(copy)
        elif _lease(redis, copy.tag) is not None:
            redis = _leased(redis, Lease(copy.tag, copy.message, LEASE))
            redis = _mark_kept(turn, redis, copy)
            copies.append(_trusted(copy))
        elif copy.tag in redis.returned:
            redis = _mark_kept(turn, redis, copy._replace(lost=True))
            if copy.stage in (RUNNING, ENDED, RECORDED, LATE) or not rules.drops_what_was_lost:
                copies.append(copy._replace(lost=True))
            else:
                redis = _unmarked(redis, turn.number, copy.tag)
        else:
            redis = _mark_kept(turn, redis, copy)
            if rules.asks_ledger_before_holding and copy.stage in _OWES_ACK:
                copies.append(copy)
            elif rules.holds_again:
                holding.add((copy.tag, copy.message))
                copies.append(copy)
            else:
                copies.append(copy._replace(vanished=False))
    return turn.to(
        "renews",
        me=me._replace(copies=tuple(copies), renewed=True, holding=tuple(sorted(holding))),
        redis=redis,
    )


def _trusted(copy: Copy) -> Copy:
    if copy.stage in _OWES_ACK:
        return copy
    return copy._replace(trust=LEASE, overslept=False, vanished=False)


def _mark_kept(turn: _Turn, redis: Redis, copy: Copy) -> Redis:
    """The mark of a run that may have a twin is renewed, or taken if nobody has it."""
    found = _mark(redis, copy.message)
    if found is not None and (found.worker, found.tag) == (turn.number, copy.tag):
        return _marked(redis, found._replace(left=LEASE))
    if found is None and copy.concerned and copy.stage == RUNNING:
        return _marked(redis, Mark(copy.message, turn.number, copy.tag, LEASE))
    return redis


def _held_again(turn: _Turn, tag: int, message: int) -> Move[State]:
    me = turn.me._replace(holding=tuple(item for item in turn.me.holding if item[0] != tag))
    copy = next((copy for copy in me.copies if copy.tag == tag), None)
    if turn.rules.asks_ledger_before_holding and (copy is None or copy.stage in _OWES_ACK):
        return turn.to(f"finds {tag} acknowledged, and leaves it", me=me)
    copies = tuple(_trusted(other) if other is copy else other for other in me.copies)
    redis = _leased(turn.redis, Lease(tag, message, LEASE))
    return turn.to(f"holds {tag} again", me=me._replace(copies=copies), redis=redis)


def _working(turn: _Turn, copy: Copy) -> Iterator[Move[State]]:
    if copy.stage in (TAKEN, MARKED):
        if not turn.me.stopping:
            yield from _starting(turn, copy)
    elif copy.stage == RUNNING:
        yield turn.to(
            f"ends {copy.tag}",
            # What nobody looks at from here on is as it was first, so that there are fewer states.
            me=turn.with_copy(copy, copy._replace(stage=ENDED, trust=LEASE, overslept=False, vanished=False)),
            ended=turn.state.ended | {copy.message},
        )
    elif turn.reaches_redis:
        yield from _settling(turn, copy)


def _starting(turn: _Turn, copy: Copy) -> Iterator[Move[State]]:
    rules = turn.rules
    admitted = not copy.redelivered and (not copy.lost or not rules.drops_what_was_lost)
    if rules.looks_at_own_clock and not copy.trust and not (admitted and copy.lost):
        return
    if admitted:
        yield _started(turn, copy, turn.redis)
        return
    if not turn.reaches_redis:
        if not rules.waits_for_store and copy.stage == TAKEN:
            yield _started(turn, copy, turn.redis)
        return
    found = _mark(turn.redis, copy.message)
    mine = found is not None and found.worker == turn.number
    if rules.knows_its_own_copies:
        mine = mine and found is not None and found.tag == copy.tag
    own = Mark(copy.message, turn.number, copy.tag, LEASE)
    first, second = _take_mark, _ask_success
    if not rules.marks_before_asking:
        first, second = second, first
    if copy.stage == TAKEN:
        yield from first(turn, copy, found is None or mine, own)
    elif rules.marks_before_asking and not mine:
        yield turn.to(f"lost the mark of {copy.tag}", me=turn.with_copy(copy, copy._replace(stage=TAKEN)))
    else:
        yield from second(turn, copy, found is None or mine, own)


def _take_mark(turn: _Turn, copy: Copy, free: bool, own: Mark) -> Iterator[Move[State]]:
    if not free:
        return  # Held back, and asked again later.
    redis = _marked(turn.redis, own)
    if copy.stage == TAKEN:
        yield turn.to(f"marks {copy.tag}", me=turn.with_copy(copy, copy._replace(stage=MARKED)), redis=redis)
    else:
        yield _started(turn, copy, redis)


def _ask_success(turn: _Turn, copy: Copy, free: bool, own: Mark) -> Iterator[Move[State]]:
    label = f"asks for the success of {copy.message}"
    if copy.message in turn.redis.successes:
        yield turn.to(
            f"{label}: there is one",
            me=turn.with_copy(copy, copy._replace(stage=DUPLICATE)),
            redis=_unmarked(turn.redis, turn.number, copy.tag),
        )
    elif copy.stage == MARKED:
        yield _started(turn, copy, turn.redis)
    elif free:
        yield turn.to(f"{label}: there is none", me=turn.with_copy(copy, copy._replace(stage=MARKED)))


def _started(turn: _Turn, copy: Copy, redis: Redis) -> Move[State]:
    state = turn.state
    beside = not state.forgot and any(
        other.message == copy.message and other.stage == RUNNING and _speaks_up(redis, number, other)
        for number, worker in enumerate(state.workers)
        if not worker.dead
        for other in worker.copies
        if other is not copy
    )
    again = not state.forgot and copy.message in state.settled | set(redis.successes)
    return turn.to(
        f"starts {copy.tag}",
        me=turn.with_copy(copy, copy._replace(stage=RUNNING)),
        redis=redis,
        ran_beside=state.ran_beside or beside,
        ran_again=state.ran_again or again,
    )


def _speaks_up(redis: Redis, number: int, copy: Copy) -> bool:
    """Whether a run was not silent for a lease by its own fault, or has been heard of since."""
    lease, mark = _lease(redis, copy.tag), _mark(redis, copy.message)
    leased = lease is not None and lease.left > 0
    marked = mark is not None and (mark.worker, mark.tag) == (number, copy.tag)
    return leased or marked or not copy.overslept


def _settling(turn: _Turn, copy: Copy) -> Iterator[Move[State]]:
    state, redis, rules = turn.state, turn.redis, turn.rules
    settled = state.settled | {copy.message}
    unmarked = _unmarked(redis, turn.number, copy.tag)
    recorded = unmarked._replace(successes=tuple(sorted({*redis.successes, copy.message})))
    if copy.stage == LATE:
        yield turn.to(
            f"records the success of {copy.message}",
            me=turn.with_copy(copy, None),
            redis=recorded,
            settled=settled,
        )
        return
    if copy.stage == ENDED and copy.concerned and rules.records_success:
        yield turn.to(
            f"records the success of {copy.message}",
            me=turn.with_copy(copy, copy._replace(stage=RECORDED)),
            redis=recorded,
            settled=settled,
        )
        return
    yield from _acknowledging(turn, copy, unmarked, settled)


def _acknowledging(turn: _Turn, copy: Copy, redis: Redis, settled: frozenset[int]) -> Iterator[Move[State]]:
    present = _lease(redis, copy.tag) is not None
    late = not present and copy.tag in redis.returned
    redis = _unleased(redis, copy.tag)
    label = f"acknowledges {copy.tag}"
    if late and copy.stage == ENDED and turn.rules.records_success:
        yield turn.to(f"{label}, late", me=turn.with_copy(copy, copy._replace(stage=LATE)), redis=redis)
        return
    yield turn.to(label, me=turn.with_copy(copy, None), redis=redis, settled=settled)
    if not copy.lost and not late and not turn.me.holding:
        # RENEW was on its way with this tag: it is answered that the tag is gone.
        me = turn.with_copy(copy, None, holding=((copy.tag, copy.message),))
        yield turn.to(f"{label}, which the keeper is just renewing", me=me, redis=redis, settled=settled)
    if turn.state.budget and present:
        me = turn.me._replace(link="lost")
        yield turn.fails(f"{label}, and the answer is lost", me=me, redis=redis, settled=settled)


def _giving_back(turn: _Turn, copy: Copy) -> Iterator[Move[State]]:
    """A shutdown: what runs may end, or is cut off; the rest goes back."""
    me, redis = turn.me, turn.redis
    if copy.stage == RUNNING:
        yield turn.to(f"cuts off {copy.tag}", me=turn.with_copy(copy, copy._replace(stage=TAKEN)))
        return
    if copy.stage not in (TAKEN, MARKED) or not turn.reaches_redis:
        return
    redis = _unmarked(redis, turn.number, copy.tag)
    present = _lease(redis, copy.tag) is not None
    noted = copy.lost or copy.tag in redis.returned
    if present or (turn.rules.gives_back_from_memory and not noted):
        redis = _unleased(redis, copy.tag)
        redis = redis._replace(queue=(*redis.queue, Envelope(copy.message, True)))
        if turn.rules.gives_back_from_memory:
            redis = _noted(redis, copy.tag)
    yield turn.to(f"gives back {copy.tag}", me=turn.with_copy(copy, None), redis=redis)
    if turn.state.budget:
        unsure = me._replace(link="lost")
        yield turn.fails(f"gives back {copy.tag}, and the answer is lost", me=unsure, redis=redis)


# The claims.


def never_lost(state: State) -> bool:
    """An accepted message is in the queue, leased, held by a process that lives, or its work was done."""
    somewhere = {envelope.message for envelope in state.redis.queue}
    somewhere |= {lease.message for lease in state.redis.leases}
    for worker in state.workers:
        somewhere |= {copy.message for copy in worker.copies}
        somewhere.add(worker.popped.message)
    known = somewhere | state.ended | state.redis_lost
    return all(message in known for message in range(state.unpublished, state.messages))


def settled_is_final(state: State) -> bool:
    """No start of what was recorded as a success, or acknowledged in time."""
    return not state.ran_again


def single_run(state: State) -> bool:
    """No start beside a run whose worker lives and was not silent for a lease by its own fault."""
    return not state.ran_beside


def one_holder(state: State) -> bool:
    """A delivery tag is held by one process, and there once."""
    tags = [copy.tag for worker in state.workers for copy in worker.copies if not copy.lost]
    return len(tags) == len(set(tags))


def protected(state: State) -> bool:
    """Whoever holds a message that is not done has a lease of it, or has not had time to hear otherwise."""
    redis = state.redis
    for worker in state.workers:
        about_to = {tag for tag, _ in worker.holding}
        for copy in worker.copies:
            if copy.lost or copy.vanished or copy.stage in _OWES_ACK or copy.tag in about_to:
                continue
            if _lease(redis, copy.tag) is None and copy.tag not in redis.returned:
                return False
    return True


INVARIANTS: dict[str, Callable[[State], bool]] = {
    "never lost": never_lost,
    "settled is final": settled_is_final,
    "single run": single_run,
    "one holder": one_holder,
    "protected": protected,
}


def done(state: State) -> bool:
    """All messages ran and nothing is left of them; or nobody lives; or Redis lost one."""
    if state.redis_lost or all(worker.dead for worker in state.workers):
        return True
    redis = state.redis
    left = (
        redis.queue
        or redis.leases
        or any(worker.copies or worker.popped != NOTHING for worker in state.workers)
    )
    return not left and not state.unpublished and len(state.ended) == state.messages


def show(state: State) -> str:
    """A state in one line."""
    redis = state.redis
    parts = [
        "queue [" + " ".join(f"{e.message}{'r' if e.redelivered else ''}" for e in redis.queue) + "]",
        "leases {" + ", ".join(f"{lease.tag}: {lease.left} left" for lease in redis.leases) + "}",
    ]
    if redis.returned:
        parts.append(f"returned {list(redis.returned)}")
    parts += [f"mark of {mark.message}: {'AB'[mark.worker]}/{mark.tag}" for mark in redis.marks]
    parts += [f"success of {message}" for message in redis.successes]
    if not redis.up:
        parts.append("DOWN")
    for name, worker in zip("AB", state.workers, strict=True):
        flags = [flag for flag in ("dead", "paused", "stopping") if getattr(worker, flag)]
        flags += [worker.link] * (worker.link != "on")
        held = [f"{c.tag} {_STAGES[c.stage]}{' LOST' * c.lost}" for c in worker.copies]
        parts.append(f"{name}: " + (", ".join([*flags, *held]) or "-"))
    return " | ".join(parts)
