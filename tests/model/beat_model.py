"""The model of leading Beats: a lock store, a tick store, and Beats that die, stop, and lose answers.

Two or three Beats, one or two due times. Each move is one atomic step of a store, or one step of a Beat
between two of its requests; between any two moves anything may happen to anybody.

Where a move is found in the code, below `beat_leader/`:

| move                    | file        | stands for                                               |
|-------------------------|-------------|----------------------------------------------------------|
| reads the newest epoch  | elector.py  | `newest_epoch`, before the lock is asked                 |
| asks for the lease      | elector.py  | the request leaves; trust counts from here               |
| is answered by the lock | locks/      | `acquire`, done in the store                             |
| hears that it won       | elector.py  | the answer comes, however late                           |
| looks once more         | elector.py  | `newest_epoch` again: nobody has opened this epoch       |
| opens its term          | elector.py  | `open_term`: from now on the store refuses older epochs  |
| confirms its lease      | elector.py  | `renew`; only then the term is seen by the tick          |
| renews, resigns         | elector.py  | by holder and epoch                                      |
| hears that it renewed   | elector.py  | the answer comes, however late                           |
| reads rows              | beating.py  | cursors and unfinished rows, by a new leader             |
| decides                 | beating.py  | `decide`: a row for a due time that has none             |
| takes up                | dispatch.py | a row that is due and not marked as sent                 |
| checks its trust        | dispatch.py | right before it publishes                                |
| publishes               | dispatch.py | the broker has the message                               |
| marks                   | dispatch.py | `sent`                                                   |

Time is a tick. A lease lasts LEASE ticks, trust one less. Any number of ticks may pass between two moves of a
Beat, as when it is stopped or the network is slow: that is no failure, and costs nothing.

Failures, out of a common budget: a Beat is killed, and starts again; the answer to a win or to a decision is
lost; the lock store forgets everything.

Left out: a tick store that forgets (nothing protects then), and clocks that run unlike by more than the
margin. Only a few wins are looked at.

Each of the `Rules` can be left out. The model is then broken, and the checker shows how.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.model.checker import Move

__all__ = ["INVARIANTS", "Rules", "State", "done", "moves_of", "show", "sorted_beats", "start_of"]

LEASE = 3
TRUST = LEASE - 1
NOBODY = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the design keeps to. Each has a claim that needs it."""

    fence: bool = True
    """The tick store refuses what an older epoch than the newest writes."""

    trust_from_asking: bool = True
    """Trust counts from before the request, not from its answer."""

    looks_at_trust: bool = True
    """Right before it publishes."""

    at_least: bool = True
    """An epoch is above the newest that the tick store has seen."""

    confirms: bool = True
    """A winner looks at the newest epoch once more, opens its term, and asks the lock once more."""

    reads_afresh: bool = True
    """A leader reads rows after its term was opened, not as a standby."""

    row_once: bool = True
    """A due time that has a row is not decided again."""

    swift: bool = False
    """Nobody is interrupted between the look at the trust and the mark. No rule of the design: what it
    cannot know."""


IDLE, READ, ASKED, ANSWERED, HEARD, LOOKED, OPENED, LEADS, READY, SENDS, CHECKED, PUBLISHED = range(12)
NONE, DUE, SENT = range(3)
_LEADING = (LEADS, READY, SENDS, CHECKED, PUBLISHED)


class Beat(NamedTuple):
    phase: int = IDLE
    epoch: int = 0
    known: int = 0
    """The newest epoch, as it was read."""

    trust: int = 0
    renewal: int = NOBODY
    """The trust that a renewal, asked for and not heard of, is worth by now."""

    todo: tuple[int, ...] = ()
    """What each due time was when the rows were read."""

    due: int = NOBODY
    """The one at hand."""

    sent_before: tuple[int, ...] = ()
    """Those that were marked as sent before its term was opened. For claims only."""


class State(NamedTuple):
    beats: tuple[Beat, ...]
    rows: tuple[int, ...]
    budget: int
    wins: int
    """How many more are looked at."""

    holder: int = NOBODY
    epoch: int = 0
    left: int = 0
    newest: int = 0
    led: frozenset[int] = frozenset()
    """Epochs that somebody has led in."""

    forgot: bool = False
    messages: tuple[int, ...] = ()
    breaches: frozenset[str] = frozenset()


def start_of(
    *, beats: int = 2, dues: int = 1, failures: int = 2, wins: int = 2, counts: bool = False
) -> State:
    """`counts`: messages are counted, for DOUBLE."""
    return State((Beat(),) * beats, (NONE,) * dues, failures, wins, messages=(0,) * dues if counts else ())


OLD = "no old epoch writes"
TWICE = "a due time is decided once"
AGAIN = "what was marked as sent is not sent in a later term"
SAME = "an epoch is led in once"
BESIDE = "two are trusted at once only if the lock forgot"
DOUBLE = "one message, if nobody is interrupted and the lock did not forget"


def _two_trusted(state: State) -> bool:
    return sum(beat.phase in _LEADING and beat.trust > 0 for beat in state.beats) > 1


INVARIANTS: dict[str, Callable[[State], bool]] = {
    OLD: lambda state: OLD not in state.breaches,
    TWICE: lambda state: TWICE not in state.breaches,
    AGAIN: lambda state: AGAIN not in state.breaches,
    SAME: lambda state: SAME not in state.breaches,
    BESIDE: lambda state: state.forgot or not _two_trusted(state),
    DOUBLE: lambda state: state.forgot or max(state.messages, default=0) <= 1,
}


def done(state: State) -> bool:
    """Every due time was sent, or no more wins are looked at."""
    return all(row == SENT for row in state.rows) or not state.wins


def sorted_beats(state: State) -> State:
    """Of states that differ in which Beat is which, one."""
    order = sorted(range(len(state.beats)), key=lambda number: (state.beats[number], number == state.holder))
    holder = NOBODY if state.holder == NOBODY else order.index(state.holder)
    return state._replace(beats=tuple(state.beats[number] for number in order), holder=holder)


def show(state: State) -> str:
    return (
        f"lock {state.holder}:{state.epoch} for {state.left}; newest {state.newest}; rows {state.rows}; "
        + ("; ".join(f"{n}: {b.phase} epoch {b.epoch} trust {b.trust}" for n, b in enumerate(state.beats)))
    )


def moves_of(rules: Rules) -> Callable[[State], Iterator[Move[State]]]:
    """All that can happen next."""

    def moves(state: State) -> Iterator[Move[State]]:
        yield Move("a tick passes", _later(state))
        if state.budget and (state.epoch or state.holder != NOBODY):
            lost = state._replace(holder=NOBODY, epoch=0, left=0, forgot=True, budget=state.budget - 1)
            yield Move("! the lock forgets everything", lost, True)
        for number, beat in enumerate(state.beats):
            turn = _Turn(state, number, rules)
            if state.budget and beat.phase:
                yield turn.to("! is killed", Beat(), cost=1)
            yield from _electing(turn)
            if beat.phase in _LEADING:
                yield from _keeping(turn)
                yield from _ticking(turn)

    return moves


@dataclass(frozen=True, slots=True)
class _Turn:
    state: State
    number: int
    rules: Rules

    @property
    def me(self) -> Beat:
        return self.state.beats[self.number]

    @property
    def holds(self) -> bool:
        return (self.state.holder, self.state.epoch) == (self.number, self.me.epoch) and self.state.left > 0

    @property
    def refused(self) -> bool:
        return self.rules.fence and self.state.newest > self.me.epoch

    def to(self, label: str, me: Beat, *, cost: int = 0, breach: str = "", **changes: Any) -> Move[State]:
        state = self.state._replace(**changes)
        beats = list(state.beats)
        beats[self.number] = me
        breaches = state.breaches | {breach} if breach else state.breaches
        after = state._replace(beats=tuple(beats), budget=state.budget - cost, breaches=breaches)
        bang = label.startswith("!")
        words = label.removeprefix("! ")
        return Move(f"{'! ' if bang else ''}{'ABC'[self.number]} {words}", after, bang)

    def written(self, label: str, me: Beat, *, breach: str = "", **changes: Any) -> Move[State]:
        """A write to the tick store."""
        if self.refused:
            return self.to(f"{label}, and is refused", Beat())
        old = OLD if self.state.newest > self.me.epoch else ""
        newest = max(self.state.newest, self.me.epoch)
        return self.to(label, me, breach=breach or old, newest=newest, **changes)


def _later(state: State) -> State:
    beats = tuple(map(_older, state.beats))
    left = max(0, state.left - 1)
    return state._replace(beats=beats, left=left, holder=state.holder if left else NOBODY)


def _older(beat: Beat) -> Beat:
    renewal = max(0, beat.renewal - 1) if beat.renewal != NOBODY else NOBODY
    return beat._replace(trust=max(0, beat.trust - 1), renewal=renewal)


def _electing(turn: _Turn) -> Iterator[Move[State]]:
    me, state, rules = turn.me, turn.state, turn.rules
    if me.phase == IDLE and state.wins:
        known = state.newest if rules.at_least else 0
        todo = () if rules.reads_afresh else state.rows
        yield turn.to("reads the newest epoch", Beat(READ, known=known, todo=todo))
    elif me.phase == READ:
        yield turn.to("asks for the lease", me._replace(phase=ASKED, trust=TRUST))
    elif me.phase == ASKED:
        yield from _asked(turn)
    elif me.phase == ANSWERED:
        trust = me.trust if rules.trust_from_asking else TRUST
        yield turn.to("hears that it won", me._replace(phase=HEARD, trust=trust))
    elif me.phase == HEARD and rules.confirms:
        again = me._replace(phase=LOOKED) if state.newest < me.epoch else Beat()
        yield turn.to("looks once more", again)
    elif me.phase in (HEARD, LOOKED):
        sent = tuple(due for due, row in enumerate(state.rows) if row == SENT)
        yield turn.written("opens its term", me._replace(phase=OPENED, sent_before=sent))
    elif me.phase == OPENED and not turn.holds and rules.confirms:
        yield turn.to("confirms its lease, and has lost it", Beat())
    elif me.phase == OPENED:
        breach = SAME if me.epoch in state.led else ""
        left = LEASE if rules.confirms else state.left
        led = state.led | {me.epoch}
        yield turn.to("confirms its lease", _leading(turn, me), breach=breach, left=left, led=led)


def _asked(turn: _Turn) -> Iterator[Move[State]]:
    me, state = turn.me, turn.state
    if state.holder not in (NOBODY, turn.number):
        yield turn.to("is answered by the lock: another leads", Beat())
    elif state.wins:
        epoch = max(state.epoch, me.known) + 1
        won: dict[str, Any] = {"holder": turn.number, "epoch": epoch, "left": LEASE, "wins": state.wins - 1}
        yield turn.to("is answered by the lock", me._replace(phase=ANSWERED, epoch=epoch), **won)
        if state.budget:
            yield turn.to("! is answered by the lock, and the answer is lost", Beat(), cost=1, **won)


def _leading(turn: _Turn, me: Beat) -> Beat:
    return me._replace(phase=LEADS if turn.rules.reads_afresh else READY)


def _keeping(turn: _Turn) -> Iterator[Move[State]]:
    me, state = turn.me, turn.state
    if me.renewal != NOBODY:
        worth = me.renewal if turn.rules.trust_from_asking else TRUST
        yield turn.to("hears that it renewed", me._replace(trust=max(me.trust, worth), renewal=NOBODY))
    elif not turn.holds:
        yield turn.to("renews, and has lost its lease", Beat())
    elif me.trust and (me.trust < TRUST or state.left < LEASE):
        yield turn.to("renews", me._replace(renewal=TRUST), left=LEASE)
    if me.phase == READY and turn.holds:
        yield turn.to("resigns", Beat(), holder=NOBODY, left=0)


def _ticking(turn: _Turn) -> Iterator[Move[State]]:
    me, rules = turn.me, turn.rules
    if me.phase == LEADS:
        yield turn.to("reads rows", me._replace(phase=READY, todo=turn.state.rows))
    elif me.phase == READY and not me.trust:
        yield turn.to("sees that its trust is over", Beat())
    elif me.phase == READY:
        yield from _deciding(turn)
    elif me.phase == SENDS and rules.looks_at_trust and not me.trust:
        yield turn.to("checks its trust, which is over", Beat())
    elif me.phase == SENDS and rules.swift:
        yield _marks(turn, _published(turn), "checks its trust, publishes, marks")
    elif me.phase == SENDS:
        yield turn.to("checks its trust", me._replace(phase=CHECKED))
    elif me.phase == CHECKED:
        yield turn.to("publishes", me._replace(phase=PUBLISHED), **_published(turn))
    elif me.phase == PUBLISHED:
        yield _marks(turn, {}, "marks")


def _deciding(turn: _Turn) -> Iterator[Move[State]]:
    me, state = turn.me, turn.state
    for due, row in enumerate(me.todo):
        if row == DUE:
            yield turn.to("takes up", me._replace(phase=SENDS, due=due))
        elif row == NONE:
            there = state.rows[due]
            if there != NONE and turn.rules.row_once:
                yield turn.to("decides, and it was decided", me._replace(todo=_set(me.todo, due, SENT)))
                continue
            breach = TWICE if there != NONE else ""
            rows = _set(state.rows, due, DUE)
            sends = me._replace(phase=SENDS, due=due)
            yield turn.written("decides", sends, breach=breach, rows=rows)
            if state.budget and not turn.refused:
                again = me._replace(phase=LEADS)
                lost = turn.written("! decides, and the answer is lost", again, breach=breach, rows=rows)
                yield lost._replace(state=lost.state._replace(budget=state.budget - 1))


def _published(turn: _Turn) -> dict[str, Any]:
    me, state = turn.me, turn.state
    breaches = state.breaches | {AGAIN} if me.due in me.sent_before else state.breaches
    if not state.messages:
        return {"breaches": breaches}
    messages = _set(state.messages, me.due, min(2, state.messages[me.due] + 1))
    return {"messages": messages, "breaches": breaches}


def _marks(turn: _Turn, published: dict[str, Any], label: str) -> Move[State]:
    me, state = turn.me, turn.state
    if turn.refused:
        return turn.to(f"{label}, and is refused", Beat(), **published)
    left = me._replace(phase=READY, due=NOBODY, todo=_set(me.todo, me.due, SENT))
    return turn.written(label, left, rows=_set(state.rows, me.due, SENT), **published)


def _set(values: tuple[int, ...], at: int, value: int) -> tuple[int, ...]:
    return (*values[:at], value, *values[at + 1 :])
