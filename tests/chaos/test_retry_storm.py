"""A dependency comes back after a minute under load: no storm, no loss, no letter; beside plain Celery."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from hardening.retries.outage import Outage
from hardening.testing.servers import RedisServer, ServerMissing
from tests.conftest import absent

from .report import histogram, table
from .storm import Outcome, Storm

TASKS = 1000
SEED = int(os.environ.get("CHAOS_SEED", "20"))
MEAN_OF_A_BIN = 40
PROCESSES = 4  # Two workers with two children each: so many calls may be under way.
LONGEST_WAIT_SECONDS = Outage().longest_wait


pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """Both variants at the same time on the same machine, each with a broker of its own."""
    with ExitStack() as stack:
        storms = {
            variant: _storm(variant, stack, tmp_path_factory.mktemp(variant))
            for variant in ("hardened", "plain")
        }
        with ThreadPoolExecutor(len(storms)) as pool:
            running = {variant: pool.submit(storm.run) for variant, storm in storms.items()}
        found = {variant: run.result() for variant, run in running.items()}
    ordered = list(found.values())
    print(f"\n\nRetry storm: {TASKS} tasks, downstream dead for {ordered[0].down_for:.0f} s, seed {SEED}")
    print(f"\n{table(ordered, mean=MEAN_OF_A_BIN)}")
    print(*(f"\n{histogram(outcome)}" for outcome in ordered), sep="\n")
    return found


@pytest.fixture
def hardened(outcomes: dict[str, Outcome]) -> Outcome:
    return outcomes["hardened"]


def _storm(variant: str, stack: ExitStack, directory: Path) -> Storm:
    try:
        server = stack.enter_context(RedisServer())
    except ServerMissing as missing:
        absent(str(missing))
    return Storm(
        variant=variant,
        broker_url=server.url_for(0),
        result_url=server.url_for(1),
        directory=directory,
        seed=SEED,
        tasks=TASKS,
    )


def test_every_task_is_done_once_and_none_becomes_a_letter(hardened: Outcome) -> None:
    assert len(hardened.served) == TASKS
    assert set(hardened.served.values()) == {1}
    assert hardened.letters == 0
    assert hardened.failed == 0


def test_the_outage_is_noticed_after_few_calls_and_fewer_than_20_ask_if_it_is_over(hardened: Outcome) -> None:
    assert hardened.before_opened is not None
    assert hardened.while_probing is not None
    assert 20 <= hardened.before_opened <= 20 + PROCESSES
    assert 1 <= hardened.while_probing < 20
    assert hardened.while_down < 40


def test_once_it_is_back_arrivals_have_no_peak_above_twice_their_mean(hardened: Outcome) -> None:
    assert sum(hardened.arrivals(MEAN_OF_A_BIN)) == TASKS
    assert hardened.peak_over_mean(MEAN_OF_A_BIN) <= 2


def test_all_is_done_within_two_waits_of_the_longest_after_it_is_back(hardened: Outcome) -> None:
    """At most one wait until a probe finds out, and one until the last of the parked asks again."""
    assert hardened.last_success <= hardened.down_for + 2 * LONGEST_WAIT_SECONDS


def test_plain_celery_meets_the_same_outage_with_more_calls(outcomes: dict[str, Outcome]) -> None:
    plain, hardened = outcomes["plain"], outcomes["hardened"]
    assert plain.while_down > 10 * hardened.while_down
