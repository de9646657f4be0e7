"""Facts become incidents without flapping; each notice is delivered by one at a time, until it is taken."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hardening.alerts import delivery, policy
from hardening.alerts.book import Book, Phase
from hardening.alerts.notice import News
from hardening.alerts.policy import LOOK_SECONDS, Terms
from hardening.alerts.rules import LONGEST_NAME, MOST_CHANNELS
from hardening.alerts.texts import MOST_FACTS, OTHERS, clean
from hardening.core.alerts import Fact
from hardening.core.redaction import Redactor
from hardening.store import LARGEST_BYTES, encoded

TERMS = Terms(every=10, gone=60, remind_every=3600, channels=("mail", "hook"))
A, B = Fact("a", "a is down"), Fact("b", "b is down")


def look(book: Book, now: float, *facts: Fact, terms: Terms = TERMS) -> list[News]:
    """One look; what is new to be told. The book goes through the store."""
    known = {each.number for incident in book.incidents.values() for each in incident.notices}
    assert policy.claim_look(book, terms, now=now, me="me")
    policy.facts_seen(book, terms, list(facts), now=now, me="me")
    read = Book.read(json.loads(encoded(book.as_document())))
    assert read == book
    return [
        each.news
        for incident in book.incidents.values()
        for each in incident.notices
        if each.number not in known
    ]


def told(book: Book, now: float) -> list[tuple[str, News]]:
    """Everyone takes all that is due."""
    done = []
    while tasks := delivery.take(book, {"mail": 9, "hook": 9}, now=now, me="me"):
        for task in tasks:
            done.append((task.channel, task.notice.news))
            delivery.settle(book, task.notice.number, task.channel, delivered=True, now=now, me="me")
    return done


def test_a_fact_is_told_once_reminded_of_and_resolved_when_it_was_gone_for_a_while() -> None:
    book = Book()

    assert look(book, 0, A) == [News.OPENED]
    assert look(book, 10, A) == []
    assert look(book, 3600, A) == [News.STILL]
    assert look(book, 3610) == []
    assert look(book, 3660) == []
    assert look(book, 3670) == [News.RESOLVED]
    assert told(book, 3670) == [(c, n) for n in (News.OPENED, News.RESOLVED) for c in ("mail", "hook")]
    assert book.incidents == {}


def test_what_comes_and_goes_is_one_incident() -> None:
    book = Book()

    news = [look(book, 10.0 * turn, *([A] if turn % 5 == 0 else [])) for turn in range(50)]

    assert [each for each in news if each] == [[News.OPENED]]


def test_a_fact_must_hold_for_as_many_looks_and_as_long_as_the_condition_says() -> None:
    terms = Terms(every=10, hold_looks=3, hold=25, channels=("mail",))
    book = Book()

    assert [look(book, 10.0 * turn, A, terms=terms) for turn in range(3)] == [[], [], []]
    assert look(book, 30, A, terms=terms) == [News.OPENED]
    assert look(book, 40, A, B, terms=terms) == []
    assert look(book, 50, A, terms=terms) == []  # b was missed once, and begins anew.
    assert [look(book, 60.0 + 10 * turn, A, B, terms=terms) for turn in range(3)] == [[], [], []]
    assert look(book, 90, A, B, terms=terms) == [News.OPENED]


def test_a_look_that_failed_resolves_nothing() -> None:
    book = Book()
    look(book, 0, A)
    look(book, 10)
    for now in range(20, 600, 10):
        assert policy.claim_look(book, TERMS, now=now, me="me")
        policy.nothing_known(book, TERMS, now=now, me="me")

    assert look(book, 600) == []
    assert look(book, 660) == [News.RESOLVED]


def test_one_looks_at_a_time_and_a_dead_one_is_followed() -> None:
    book = Book()

    assert policy.claim_look(book, TERMS, now=0, me="dead")
    assert not policy.claim_look(book, TERMS, now=LOOK_SECONDS - 1, me="me")
    assert policy.claim_look(book, TERMS, now=LOOK_SECONDS, me="me")
    policy.facts_seen(book, TERMS, [A], now=LOOK_SECONDS + 1, me="dead")  # It was only slow.
    assert book.incidents == {}
    policy.facts_seen(book, TERMS, [B], now=LOOK_SECONDS + 1, me="me")
    assert list(book.incidents) == ["b"]
    assert not policy.claim_look(book, TERMS, now=LOOK_SECONDS + 10, me="other")


def test_a_channel_that_fails_is_tried_later_and_later_and_does_not_keep_the_other() -> None:
    book = Book()
    look(book, 0, A)
    tries, now = [], 0.0
    while now < 3600:
        for task in delivery.take(book, {"mail": 9, "hook": 9}, now=now, me="me"):
            tries.append((now, task.channel))
            works = task.channel == "mail"
            delivery.settle(book, task.notice.number, task.channel, delivered=works, now=now, me="me")
        now += 1

    assert [at for at, channel in tries if channel == "mail"] == [0]
    assert [at for at, channel in tries if channel == "hook"][:5] == [0, 5, 15, 35, 75]
    assert len(tries) < 15


def test_who_dies_with_a_delivery_is_followed_and_nobody_delivers_beside_one_who_lives() -> None:
    book = Book()
    look(book, 0, A)
    room = {"mail": 9}

    assert len(delivery.take(book, room, now=0, me="dead")) == 1
    assert delivery.take(book, room, now=delivery.CLAIM_SECONDS - 1, me="me") == []
    assert len(delivery.take(book, room, now=delivery.CLAIM_SECONDS, me="me")) == 1


def test_a_notice_that_a_channel_never_took_is_given_up_and_said() -> None:
    book = Book()
    look(book, 0, A)

    assert delivery.give_up(book, now=delivery.KEPT_SECONDS) == []
    assert sorted(delivery.give_up(book, now=delivery.KEPT_SECONDS + 1)) == [("hook", "a"), ("mail", "a")]
    assert book.incidents["a"].phase is Phase.OPEN


def test_a_clock_that_is_set_back_stops_nobody() -> None:
    book = Book()
    look(book, 1e6, A)
    delivery.take(book, {"mail": 9}, now=1e6, me="dead")

    assert policy.claim_look(book, TERMS, now=0, me="me") is False
    book.due = 0
    assert policy.claim_look(book, TERMS, now=0, me="me")


def test_more_than_a_few_incidents_at_a_time_are_counted_in_one() -> None:
    book = Book()
    facts = [Fact(f"group {number}", f"group {number} is new") for number in range(200)]

    look(book, 0, *facts[:5])
    look(book, 10, *reversed(facts))

    assert len(book.incidents) == MOST_FACTS + 1
    assert {f"group {number}" for number in range(5)} < book.incidents.keys()
    assert book.incidents[OTHERS].summary.startswith("180 more")


def test_texts_are_without_secrets_bounded_and_names_that_begin_alike_are_two() -> None:
    long = "x" * 500
    facts = [
        Fact("password=hunter22", "a\nb\ud800 " + "\U0001f4a5" * 500, "token: abcdef", "https://u:pw@h/"),
        Fact(long + "1", ""),
        Fact(long + "2", ""),
    ]

    first, *alike = clean(facts, Redactor())

    assert "hunter22" not in first.subject
    assert "abcdef" not in first.detail
    assert ":pw@" not in first.link
    assert first.summary.startswith("a b? ")
    assert len(json.dumps(first.summary)) < 250
    assert len({each.subject for each in alike}) == 2


def test_what_others_wrote_is_an_empty_book() -> None:
    documents: list[dict[str, Any]] = [
        {"incidents": 3},
        {"version": 99},
        {"incidents": {"a": {"notices": [{}]}}},
        {"x": 1},
    ]
    for document in documents:
        assert Book.read(document) == Book()


def test_a_full_book_of_the_longest_texts_fits_into_a_document() -> None:
    channels = tuple(f"{number}" * LONGEST_NAME for number in range(MOST_CHANNELS))
    terms = Terms(every=1, gone=0, remind_every=1, channels=channels)
    facts = clean(
        [Fact(f"{number}" + "\U0001f4a5" * 999, *["\U0001f4a5" * 999] * 3) for number in range(90)],
        Redactor(),
    )
    book, now = Book(), 1_700_000_000.123456
    for _ in range(4):
        look(book, now, *facts, terms=terms)
        delivery.take(book, dict.fromkeys(channels, 999), now=now, me="12345678")
        look(book, now + 1, terms=terms)
        now += 2

    assert len(encoded(book.as_document())) <= LARGEST_BYTES


SUBJECTS = ("a", "b", "c")
LASTING = Terms(every=1, gone=30, remind_every=100, channels=("mail",))


class Fleet:
    """One process after another, with what the channel heard."""

    def __init__(self) -> None:
        self.book, self.now, self.lives = Book(), 0.0, 0
        self.running: list[delivery.Task] = []
        self.heard: list[tuple[str, int, News]] = []

    @property
    def me(self) -> str:
        return f"life {self.lives}"

    def look(self, subjects: set[str]) -> None:
        if policy.claim_look(self.book, LASTING, now=self.now, me=self.me):
            facts = [Fact(subject, subject) for subject in sorted(subjects)]
            policy.facts_seen(self.book, LASTING, facts, now=self.now, me=self.me)

    def fail(self, subjects: set[str]) -> None:
        if policy.claim_look(self.book, LASTING, now=self.now, me=self.me):
            policy.nothing_known(self.book, LASTING, now=self.now, me=self.me)

    def take(self, subjects: set[str]) -> None:
        self.running += delivery.take(self.book, {"mail": 2}, now=self.now, me=self.me)

    def die(self, subjects: set[str]) -> None:
        self.lives, self.running = self.lives + 1, []

    def deliver(self, subjects: set[str]) -> None:
        for task in self.running[:1]:
            self.heard.append((task.subject, task.notice.number, task.notice.news))
            self._settle(task, delivered=True)

    def refuse(self, subjects: set[str]) -> None:
        for task in self.running[:1]:
            self._settle(task, delivered=False)

    def _settle(self, task: delivery.Task, *, delivered: bool) -> None:
        self.running.remove(task)
        number = task.notice.number
        delivery.settle(self.book, number, "mail", delivered=delivered, now=self.now, me=self.me)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [Fleet.look, Fleet.look, Fleet.fail, Fleet.take, Fleet.die, Fleet.deliver, Fleet.refuse]
        ),
        st.sets(st.sampled_from(SUBJECTS)),
        st.floats(0, 90),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(STEPS)
def test_whatever_happens_a_channel_that_works_in_the_end_knows_how_it_is(steps) -> None:
    fleet = Fleet()
    for step, subjects, passed in steps:
        fleet.now += passed
        step(fleet, subjects)
        fleet.book = Book.read(json.loads(encoded(fleet.book.as_document())))
    for _ in range(12):
        fleet.now += 700  # Longer than any claim or wait.
        fleet.take(set())
        while fleet.running:
            fleet.deliver(set())

    for subject in SUBJECTS:
        heard = [(number, news) for of, number, news in fleet.heard if of == subject]
        assert heard == sorted(heard, key=lambda each: each[0])
        incident = fleet.book.incidents.get(subject)
        is_open = incident is not None and incident.phase is Phase.OPEN
        assert (bool(heard) and heard[-1][1] is not News.RESOLVED) == is_open
