"""What is counted, whatever dies at whatever line: so many starts, one letter, and nobody else is charged."""

from __future__ import annotations

import json
from copy import copy
from types import SimpleNamespace
from typing import Any

import pytest
from celery.exceptions import Terminated, TimeLimitExceeded, WorkerLostError
from celery.worker import state
from kombu.message import Message

from hardening.core.events import task_died, task_quarantined
from hardening.core.identity import KEY_HEADER, PUBLISHED_HEADER, REPLAY_HEADER, SUSPECT_HEADER
from hardening.holding import holding_for
from hardening.poison.case import GIVEN_UP_SECONDS, Suspicion
from hardening.poison.policy import Next
from hardening.poison.step import prepare
from hardening.poison.terms import Poison
from hardening.poison.work import digest_of
from hardening.shutdown import drain as drains
from hardening.twins.work import Work
from tests.helpers.hardened_apps import (
    EVENTS,
    LETTERS,
    RecordingSink,
    cut_off,
    hardened_app,
    request_of,
    run,
    send,
)
from tests.helpers.poisoned import KILLED, Killed, PoisonWorker, came_back, case_of, info_of, killed_at
from tests.helpers.twin_fixtures import clock, nothing_runs, store
from tests.helpers.twin_messages import Clock, Switchable

pytestmark = pytest.mark.usefixtures("isolated", "recording", "nothing_runs")

__all__ = ["clock", "nothing_runs", "store"]


@pytest.fixture
def app() -> Any:
    return hardened_app()


@pytest.fixture
def task(app: Any) -> Any:
    @app.task(name="work", shared=False)  # type: ignore[untyped-decorator]
    def work(*args: Any) -> str:
        return "done"

    return work


@pytest.fixture
def worker(app: Any, store: Switchable, clock: Clock) -> PoisonWorker:
    made = PoisonWorker(app, store, clock)
    made.works()
    return made


def another(worker: PoisonWorker, clock: Clock, name: str = "w2", **options: Any) -> PoisonWorker:
    options.setdefault("terms", worker.terms)
    return PoisonWorker(worker.app, worker.store, clock, name, **options)


def die(request: Any, exc: BaseException = KILLED) -> None:
    request.on_failure(info_of(exc))


def started_until_the_end(task: Any, workers: Any, clock: Clock) -> int:
    """How often a message starts that kills all of these workers, one after the other."""
    message, started = send(task), 0
    for worker in workers:
        while not worker.takes(message) and not LETTERS:
            clock.now += 1
        if LETTERS:
            break
        started += 1
        worker.starts(message)
        worker.dies()
        message = came_back(message, recovered_from=worker.name)
    return started


# What costs nothing


def test_a_message_that_comes_for_the_first_time_asks_the_store_nothing(worker, task, store) -> None:
    message = send(task)
    assert worker.takes(message)
    run(worker.starts(message))

    assert store.asked == 0


def test_a_neighbour_that_never_began_is_never_charged(worker, task, store, clock) -> None:
    message = send(task)
    for number in range(10):
        holder = another(worker, clock, f"w{number}")
        assert holder.takes(message)
        holder.dies()
        message = came_back(message, recovered_from=holder.name)

    assert case_of(store, message).deaths == ()
    assert another(worker, clock).decides(message).next is Next.RUN


# Deaths of a child, which its parent sees


def test_the_third_death_of_a_child_ends_in_one_letter_with_each_death(worker, task, clock) -> None:
    message = send(task)
    for deaths in (1, 2):
        assert worker.takes(message)
        request = worker.starts(message)
        die(request)
        assert request.answers.given == ["requeue"]
        assert len(case_of(worker.store, message).deaths) == deaths
        message = came_back(message)
        clock.now += 1
    assert worker.takes(message)
    request = worker.starts(message)
    die(request)

    assert request.answers.given == ["ack"]
    [letter] = LETTERS
    assert letter.reason == "poison"
    assert [(each.number, each.error_class) for each in letter.attempts] == [
        (1, "SIGKILL"),
        (2, "SIGKILL"),
        (3, "SIGKILL"),
    ]
    assert "process 4242 of worker w1@host" in letter.last_attempt.message
    assert EVENTS == ["letter poison", "backend FAILURE"]
    assert "given up after 3 starts" in str(task.backend.get_result(request.id))
    assert not case_of(worker.store, message).is_known


def test_a_death_is_known_before_its_message_goes_back(worker, task, store, clock) -> None:
    message = send(task)
    request = worker.starts(message)
    with killed_at(request, "reject"):
        die(request)
    worker.dies()

    assert len(case_of(store, message).deaths) == 1
    assert another(worker, clock).decides(came_back(message, recovered_from="w1")).count == 1


def test_a_worker_that_dies_before_it_has_written_a_death_leaves_a_start_that_counts(
    worker, task, store, clock
) -> None:
    message = came_back(send(task))
    assert worker.takes(message)
    request = worker.starts(message)
    with killed_at(worker.ledger, "change"):
        die(request)
    worker.dies()

    assert another(worker, clock).decides(came_back(message, recovered_from="w1")).count == 1
    assert [(death.worker, death.how) for death in case_of(store, message).deaths] == [("w1@host", "gone")]


@pytest.mark.parametrize("at", ["keep_poison", "_report"])
def test_a_worker_that_dies_while_it_ends_a_poison_task_leaves_the_end_to_others_and_no_start(
    at, worker, task, store, clock, monkeypatch
) -> None:
    worker.terms = worker.watch.terms = Poison(limit=1)
    message = send(task)
    request = worker.starts(message)

    def gone(*args: Any, **kwargs: Any) -> None:
        raise Killed

    if at == "_report":
        request._report = gone
    else:
        monkeypatch.setattr("hardening.poison.request.keep_poison", gone)
    with pytest.raises(Killed):
        die(request)
    monkeypatch.undo()
    worker.dies()

    other = another(worker, clock)
    assert not other.takes(came_back(message, recovered_from="w1"))
    assert {(letter.reason, letter.delivery_key) for letter in LETTERS} == {("poison", request.id)}
    assert other.ended[0].answers.given == ["ack"]
    assert not case_of(store, message).is_known


def test_a_letter_that_is_not_kept_is_held_and_then_tells_the_same(worker, app, task, store) -> None:
    told = []
    task_quarantined.connect(receiver := lambda **facts: told.append((facts["deaths"], facts["limit"])))
    worker.watch.terms = Poison(limit=1)
    RecordingSink.down = True
    message = send(task)
    cut_off(app)
    request = worker.starts(message)
    die(request)

    assert (request.answers.given, told, EVENTS) == ([], [], [])
    assert case_of(store, message).starts == ()  # It has ended: nobody is charged once more for it.
    RecordingSink.down = False
    [held] = holding_for(app)._held
    held.due = 0
    holding_for(app).retry_due()
    assert request.answers.given == ["ack"]
    assert EVENTS == ["letter poison", "backend FAILURE"]
    assert told == [(1, 1)]
    task_quarantined.disconnect(receiver)


def test_what_is_given_up_is_acknowledged_when_all_is_told(worker, task) -> None:
    worker.watch.terms = Poison(limit=1)
    request = worker.starts(send(task))
    request._on_ack = lambda *_: EVENTS.append("ack")
    die(request)

    assert EVENTS == ["letter poison", "backend FAILURE", "ack"]


def test_a_letter_that_was_held_when_its_channel_was_lost_is_told_by_who_gets_the_message(
    worker, app, task, clock
) -> None:
    worker.watch.terms = Poison(limit=1)
    RecordingSink.down = True
    message = came_back(send(task), on_rabbitmq=True)
    request = worker.starts(message)
    cut_off(app)
    die(request)
    redelivered = copy_of(message)
    redelivered.channel = SimpleNamespace(is_open=True)
    message.channel.is_open = False
    RecordingSink.down = False

    [held] = holding_for(app)._held
    held.due = 0
    holding_for(app).retry_due()
    assert (EVENTS, request.acknowledged) == (["letter poison"], True)

    assert not another(worker, clock, terms=Poison(limit=1)).takes(redelivered)
    assert EVENTS == ["letter poison", "letter poison", "backend FAILURE"]
    assert {letter.delivery_key for letter in LETTERS} == {request.id}


@pytest.mark.parametrize(
    ("pool", "expected"), [("prefork", True), ("solo", True), ("gevent", False), ("thread", False)]
)
def test_where_a_task_begins_with_its_hand_over_its_start_is_written_before(
    pool, expected, app, worker
) -> None:
    of_pool = type("TaskPool", (), {"__module__": f"celery.concurrency.{pool}"})

    prepare(SimpleNamespace(app=app, hostname="w1", pool=of_pool()))

    assert worker.watch.at_hand_over is expected


# Copies of what was given up


def copy_of(message: Any) -> Any:
    """The same publish, delivered once more."""
    found = copy(message)
    found.headers, found.delivery_info = dict(message.headers), dict(message.delivery_info)
    found._state = "RECEIVED"
    return came_back(found)


def given_up(worker: PoisonWorker, message: Any) -> Any:
    """The request that ends the work of a message, at once."""
    worker.terms = worker.watch.terms = Poison(limit=1)
    request = worker.starts(message)
    die(request)
    assert [letter.reason for letter in LETTERS] == ["poison"]
    return request


def test_a_copy_of_what_was_given_up_ends_without_a_start_and_without_a_second_letter(
    worker, task, clock, caplog
) -> None:
    message = send(task)
    copies = [copy_of(message) for _ in range(2)]
    given_up(worker, message)

    other = another(worker, clock)
    for each in copies:
        assert not other.takes(each)
    assert other.acknowledged == copies
    assert len(LETTERS) == 1
    assert "was given up, and this copy of it is acknowledged" in caplog.text
    clock.now += GIVEN_UP_SECONDS
    assert other.takes(copy_of(message))


def test_a_copy_that_waits_for_a_child_when_its_work_is_given_up_ends_as_well(worker, task) -> None:
    message = send(task)
    waiting = request_of(worker.app, copy_of(message))
    state.task_reserved(waiting)
    given_up(worker, message)

    assert waiting.revoked()
    assert waiting.answers.given == ["ack"]
    assert len(LETTERS) == 1


def test_the_same_id_and_arguments_sent_anew_are_no_copy(worker, task) -> None:
    given_up(worker, send(task, task_id="nightly"))

    anew = came_back(send(task, task_id="nightly"))

    assert worker.takes(anew)
    assert not request_of(worker.app, anew).revoked()


def test_a_replay_is_no_copy_and_its_own_copies_are(worker, task) -> None:
    first = send(task, task_id="first")
    given_up(worker, first)
    replay = send(task, task_id="second", headers={KEY_HEADER: "first", REPLAY_HEADER: 1})
    its_copy = copy_of(replay)

    assert worker.takes(replay)
    die(worker.starts(replay))
    assert not worker.takes(its_copy)
    assert len(LETTERS) == 2


def test_where_nothing_tells_a_publish_from_the_next_the_copy_starts(worker, task) -> None:
    """It may be a new work with the id and the arguments of the former, which must not be lost."""
    message = send(task)
    del message.headers[PUBLISHED_HEADER]
    given_up(worker, message)

    assert worker.takes(copy_of(message))


def test_with_its_channel_gone_the_case_stays_where_no_copy_could_be_told(worker, task) -> None:
    message = came_back(send(task), on_rabbitmq=True)
    del message.headers[PUBLISHED_HEADER]
    worker.terms = worker.watch.terms = Poison(limit=1)
    request = worker.starts(message)
    message.channel.is_open = False
    die(request)

    assert request.answers.given == []
    assert not worker.takes(copy_of(message))
    assert {letter.delivery_key for letter in LETTERS} == {request.id}


def test_a_success_of_the_same_key_keeps_the_names_of_what_was_given_up(worker, task) -> None:
    message = send(task, headers={KEY_HEADER: "a key"})
    its_copy = copy_of(message)
    given_up(worker, message)
    run(worker.starts(send(task, headers={KEY_HEADER: "a key"})))

    assert not worker.takes(its_copy)


# Deaths of the worker, which nobody sees


@pytest.mark.parametrize("limit", [2, 3, 5])
def test_what_kills_its_whole_worker_has_exactly_so_many_starts(limit, worker, task, clock) -> None:
    terms = Poison(limit=limit, base=0.001, cap=0.001)

    def workers() -> Any:
        for number in range(20):
            clock.now += 1
            yield another(worker, clock, f"w{number}", terms=terms)

    assert started_until_the_end(task, workers(), clock) == limit
    [letter] = LETTERS
    assert [each.error_class for each in letter.attempts] == ["worker gone"] * limit


def test_a_task_that_is_allowed_one_start_has_one_though_its_worker_dies(worker, app, clock) -> None:
    @app.task(name="once", shared=False, poison_limit=1)  # type: ignore[untyped-decorator]
    def once() -> None: ...

    workers = (another(worker, clock, f"w{number}") for number in range(5))
    assert started_until_the_end(once, workers, clock) == 1
    assert [len(letter.attempts) for letter in LETTERS] == [1]


def test_one_that_waited_with_it_and_later_dies_once_is_charged_for_both_and_not_more(
    worker, task, clock
) -> None:
    message = came_back(send(task), recovered_from="w0")
    assert worker.decides(message).count == 0
    die(worker.starts(message))
    assert worker.decides(message).count == 2


def test_on_rabbitmq_only_what_nobody_gave_back_is_suspected(worker, task, store, monkeypatch) -> None:
    returned: list[str] = []
    monkeypatch.setattr("hardening.poison.watch.was_returned", lambda app, digest: digest in returned)
    given_back, killed = (came_back(send(task), on_rabbitmq=True) for _ in range(2))
    from hardening.poison.work import digest_of

    returned.append(digest_of(given_back))

    assert worker.takes(given_back)
    assert worker.takes(killed)
    assert case_of(store, given_back).suspected is None
    assert case_of(store, killed).suspected == Suspicion(at=worker.store._clock(), holder="")


# What is no death


def test_a_start_of_a_worker_that_lives_is_none(worker, task, clock) -> None:
    first = send(task, headers={KEY_HEADER: "a key"})
    second = send(task, headers={KEY_HEADER: "a key"})
    worker.starts(first)
    other = another(worker, clock)

    assert other.decides(second).count == 0


@pytest.mark.parametrize("how", ["success", "given back", "retry", "killed greenlet", "terminated", "held"])
def test_a_start_that_ends_in_any_other_way_is_taken_off_before_the_broker_is_told(
    how, worker, app, task, store
) -> None:
    message = came_back(send(task))
    request = worker.starts(message)
    assert len(case_of(store, message).starts) == 1
    seen: list[int] = []
    request._on_ack = lambda *_: seen.append(len(case_of(store, message).starts))
    request._on_reject = lambda *_: seen.append(len(case_of(store, message).starts))

    if how == "success":
        request.acknowledge()
    elif how == "given back":
        request.let_go()
        request.reject(requeue=True)
    elif how == "retry":
        request.on_failure(info_of(ValueError("no")), return_ok=True)
    elif how == "killed greenlet":
        from hardening.trace import CUT_OFF

        CUT_OFF.add(request.id)
        request.acknowledge()
    elif how == "terminated":
        request.on_failure(info_of(Terminated(15)))
    else:
        request.on_failure(info_of(TimeLimitExceeded(1)))

    assert case_of(store, message).starts == ()
    assert case_of(store, message).deaths == ()
    assert set(seen) <= {0}


def test_a_success_closes_the_case(worker, task, store, clock) -> None:
    message = send(task)
    for _ in range(2):
        die(worker.starts(message))
        message = came_back(message)
        clock.now += 1
    request = worker.starts(message)
    request.on_success((False, "done", 0.1))

    assert request.answers.given == ["ack"]
    assert case_of(store, message).document() is None
    assert LETTERS == []


@pytest.mark.parametrize("why", ["cut", "cancelled", "revoked", "cold shutdown", "told to stop"])
def test_an_end_that_was_asked_for_is_no_death(why, worker, app, task, store, monkeypatch) -> None:
    message = send(task)
    request = worker.starts(message)
    exc = KILLED
    if why == "cut":
        request.was_cut = True
    elif why == "cancelled":
        request._already_cancelled = True
    elif why == "revoked":
        request._already_revoked = True
    elif why == "cold shutdown":
        monkeypatch.setattr(state, "should_terminate", 0)
    else:
        drain: Any = SimpleNamespace(asked=True, refuses=lambda request: False)
        monkeypatch.setattr(drains, "_current", drain)
        exc = WorkerLostError("Worker exited prematurely: exitcode 15 Job: 1.")
    die(request, exc)

    assert case_of(store, message).document() is None
    assert LETTERS == []


def test_a_child_that_had_stored_its_success_is_charged_with_nothing(worker, task, store) -> None:
    message = send(task)
    request = worker.starts(message)
    task.backend.mark_as_done(request.id, "done")
    request._had_succeeded = task.backend.get_task_meta(request.id)
    die(request)

    assert case_of(store, message).document() is None


# The same work under other names


def of_protocol_1(task_id: str) -> Any:
    """What a producer that is no Celery of today may send: everything is in the body."""
    body = {"task": "work", "id": task_id, "args": [], "kwargs": {}}
    return Message(
        body=json.dumps(body),
        content_type="application/json",
        content_encoding="utf-8",
        delivery_info={"redelivered": True},
        accept={"application/json"},
    )


def test_messages_of_protocol_1_are_works_of_their_own_by_the_id_in_their_bodies() -> None:
    one, same, other = of_protocol_1("a"), of_protocol_1("a"), of_protocol_1("b")

    assert digest_of(one) == digest_of(same) != digest_of(other)
    assert (Work.of(one).task_id, Work.of(one)) == ("a", Work.of(same))


def test_messages_that_tell_no_id_are_told_apart_by_their_bodies() -> None:
    one, other = (Message(body=body, content_type="no/type") for body in ("1", "2"))

    assert digest_of(one) != digest_of(other)


def test_one_key_under_many_ids_is_counted_together(worker, task, clock) -> None:
    started = 0
    for number in range(6):
        message = send(task, task_id=f"id-{number}", headers={KEY_HEADER: "a key"})
        if not worker.takes(message):
            break
        started += 1
        die(worker.starts(message))
        clock.now += 1
        if LETTERS:
            break

    assert started == 3
    assert [letter.delivery_key for letter in LETTERS] == ["a key"]


def test_a_start_is_refused_at_its_last_moment_when_others_of_its_work_have_died(worker, task, clock) -> None:
    messages = [send(task, task_id=f"id-{n}", headers={KEY_HEADER: "a key"}) for n in range(4)]
    from tests.helpers.hardened_apps import request_of

    last = request_of(worker.app, messages[3])
    for message in messages[:2]:
        die(worker.starts(message))
        clock.now += 1
    running = worker.starts(messages[2])

    assert last.revoked(), "it may be the last death that is still allowed"
    assert last.answers.given == ["requeue"]
    die(running)
    late = request_of(worker.app, send(task, task_id="late", headers={KEY_HEADER: "a key"}))
    assert len(LETTERS) == 1
    assert not late.revoked(), "the case was closed with its letter"


def test_retries_of_a_suspect_say_so(worker, task) -> None:
    request = worker.starts(came_back(send(task)))

    assert request.request_dict[SUSPECT_HEADER] is True


# Stores that do not answer


def test_without_a_store_tasks_start_and_the_deaths_of_this_process_count(
    worker, task, store, clock, caplog
) -> None:
    store.down = True
    message, started = send(task), 0
    while worker.takes(message) and started < 10 and not LETTERS:
        started += 1
        die(worker.starts(message))
        message = came_back(message)
        clock.now += 1

    assert started == 3
    assert [letter.reason for letter in LETTERS] == ["poison"]
    assert caplog.text.count("deaths of tasks cannot be counted") == 1


def test_what_the_store_did_not_take_is_written_when_it_is_back(worker, task, store, clock) -> None:
    message = came_back(send(task))
    request = worker.starts(message)
    store.down = True
    die(request)
    store.down = False
    clock.now += 100

    worker.watch.upkeep()

    assert case_of(store, message).starts == ()
    assert len(case_of(store, message).deaths) == 1


def test_a_request_that_vanished_without_a_word_is_running_no_more(worker, task, store) -> None:
    message = came_back(send(task))
    request = worker.starts(message)
    request.acknowledged = True

    worker.watch.upkeep()

    assert case_of(store, message).starts == ()


# Waiting and moving


def test_a_death_is_followed_by_a_wait_that_others_do_not_share(worker, app, task, clock) -> None:
    slow = another(worker, clock, terms=Poison(base=10, cap=10))
    message = send(task)
    die(slow.starts(message))
    message = came_back(message)

    assert not slow.takes(message)
    assert len(slow.twins.held) == 1
    assert slow.consumer.qos.value == 2
    assert slow.takes(send(task))
    clock.now += 10
    assert slow.takes(message)


def test_the_last_try_goes_to_another_queue_once(worker, task, clock, app, monkeypatch) -> None:
    moved: list[str] = []

    def move(app: Any, message: Any, queue: str) -> bool:
        moved.append(queue)
        return True

    monkeypatch.setattr("hardening.poison.step.move", move)
    roomy = another(worker, clock, terms=Poison(limit=2, base=0.001, cap=0.001, last_try_queue="roomy"))
    message = send(task)
    assert roomy.takes(message), "its first start is not its last"
    die(roomy.starts(message))
    clock.now += 1

    assert not roomy.takes(came_back(message))
    assert (moved, roomy.acknowledged) == (["roomy"], [message])
    message.headers["hardening_moved"] = "roomy"
    assert roomy.takes(message)


def test_what_cannot_be_moved_is_tried_once_and_not_during_its_back_off(
    worker, task, clock, monkeypatch
) -> None:
    tried: list[str] = []
    monkeypatch.setattr("hardening.poison.step.move", lambda app, message, queue: tried.append(queue))
    roomy = another(worker, clock, terms=Poison(limit=2, base=10, cap=10, last_try_queue="roomy"))
    message = send(task)
    die(roomy.starts(message))
    message = came_back(message)

    assert not roomy.takes(message)
    assert tried == []
    clock.now += 10
    assert roomy.takes(message)
    assert tried == ["roomy"]
    assert not request_of(worker.app, message).revoked()


def test_what_cannot_be_moved_has_its_last_try_here(worker, task, clock, app) -> None:
    roomy = another(worker, clock, terms=Poison(limit=2, base=0.001, cap=0.001, last_try_queue="roomy"))
    message = send(task)
    die(roomy.starts(message))
    clock.now += 1
    cut_off(app)

    assert roomy.takes(came_back(message))
    assert roomy.acknowledged == []


def test_each_death_is_told(worker, task, clock) -> None:
    told: list[Any] = []
    task_died.connect(
        receiver := lambda **facts: told.append((facts["how"], facts["deaths"], facts["limit"]))
    )
    message = send(task)
    die(worker.starts(message))
    clock.now += 1
    worker.starts(came_back(message))
    worker.dies()
    another(worker, clock).decides(came_back(message, recovered_from="w1"))
    task_died.disconnect(receiver)

    assert told == [("SIGKILL", 1, 3), ("worker gone", 2, 3)]
