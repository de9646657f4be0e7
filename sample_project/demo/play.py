"""The order of the play: publish, wait, count; mend, replay, wait, count again. Or leave the shop open."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from sample_project.demo.failover import Failover, settled_due_times
from sample_project.demo.groups import all_groups, resolve_mended
from sample_project.demo.jobs import CASE_OF, plan, trickle
from sample_project.demo.ledger import Fate, Ledger, LetterState, render
from sample_project.demo.letters import missing_rules
from sample_project.demo.monthend import MonthEnd
from sample_project.demo.operation import replay_letters
from sample_project.demo.outcomes import Outcomes, groups_table, outcomes_lines
from sample_project.demo.progress import say
from sample_project.demo.publishing import publish, send
from sample_project.demo.stage import BEATS, FLOWER_PORT, OPERATOR, WEB_PORT, Stage
from sample_project.demo.verdicts import why
from sample_project.demo.watch import Watch
from sample_project.effects import RAISED, EffectReader

SETTLE_SECONDS = 120.0
TRICKLE_SECONDS = 1.0
ENOUGH_CONFLICTS = 3


def play(stage: Stage, number: int) -> int:
    """The whole demo. Prints both ledgers and, last of all, the second in one line."""
    watch = _watch(stage)
    failover = Failover(stage.kill_beat)
    begun = time.monotonic()
    first = _first_run(stage, number, watch, failover.look)
    print(f"\nAfter the first run:\n\n{render(first)}\n\n{_explained(watch)}\n", flush=True)

    say("mending the web server and the mail server, and replaying what can succeed now")
    stage.mended.set()
    again = [
        letter.id
        for letter in watch.letters
        if letter.state is LetterState.OPEN and CASE_OF[watch.published[letter.key]].can_succeed
    ]
    outcomes = replay_letters(again, check=stage.check, timeout=SETTLE_SECONDS)
    watch.settle(timeout=SETTLE_SECONDS, label="settled", each_look=failover.look)
    takeover = failover.finish(stage.check)
    stage.stop_beats()
    due_times, second = settled_due_times(watch), watch.look()
    told = f"{outcomes_lines(outcomes)}\n\n{groups_table(resolve_mended())}"
    print(f"\nAfter replaying {len(again)} dead letters:\n\n{render(second)}\n\n{told}\n", flush=True)
    say(f"{time.monotonic() - begun:.0f} s from the first job to the last")
    print(f"{due_times.line(takeover)}\n{second.line}", flush=True)
    good = as_expected(second) and replayed_as_expected(outcomes) and second.balances and due_times.balances
    return 0 if good else 1


def stay(stage: Stage, number: int) -> int:
    """The first half of the demo, then an open shop: admin, Flower and new jobs until Ctrl-C."""
    stage.open_doors()
    watch = _watch(stage)
    failover = Failover(stage.kill_beat)
    ledger = _first_run(stage, number, watch, failover.look)
    takeover = failover.finish(stage.check)
    stage.start_beat("beat-again")
    say(f"the other Beat sent its first message {takeover.seconds:.1f} s later; a new one stands by now")
    print(f"\n{render(ledger)}\n\n{_explained(watch)}\n\n{ledger.line}\n\n{_doors(stage)}", flush=True)
    with suppress(KeyboardInterrupt):
        for job in trickle(webhooks=stage.http.url):
            stage.check()
            send(job)
            time.sleep(TRICKLE_SECONDS)
    return 0


def as_expected(ledger: Ledger) -> bool:
    """Whether everything that could succeed did; says where not."""
    unhappy = {
        row.kind: row.published - row.of(Fate.SUCCEEDED)
        for row in ledger.rows
        if CASE_OF[row.kind].can_succeed and row.of(Fate.SUCCEEDED) != row.published
    }
    for kind, number in unhappy.items():
        say(f"demo: {number} jobs that could succeed did not: {kind}")
    return not unhappy


def replayed_as_expected(outcomes: Outcomes) -> bool:
    """Whether the operation knows of each of its letters that it succeeded; says where not."""
    if not outcomes.all_succeeded:
        say(f"demo: the replay did not end as it should:\n{outcomes_lines(outcomes)}")
    return outcomes.all_succeeded


def _explained(watch: Watch) -> str:
    """Why the dead letters are there, by their own words; and the rules that an operator is asked for."""
    table = f"Why, as the letters say:\n\n{why(watch.published, watch.letters, kinds=CASE_OF)}"
    table = f"{table}\n\n{groups_table(all_groups())}"
    snippet = missing_rules()
    if not snippet:
        return table
    asked = "Errors that no rule knows; `manage.py dlq_unclassified` gives this to paste:"
    return f"{table}\n\n{asked}\n\n{snippet}"


def _first_run(stage: Stage, number: int, watch: Watch, each_look: Callable[[], None]) -> Ledger:
    with _month_end(stage, watch) as until_it_hurt:

        def look() -> None:
            until_it_hurt()
            each_look()

        jobs = plan(number, webhooks=stage.http.url)
        publish(
            jobs,
            total=number,
            watch=watch,
            log_path=stage.data / "published.log",
            kill_worker=stage.kill_and_restart_cpu_worker,
        )
        return watch.settle(timeout=SETTLE_SECONDS, label="settled", each_look=look)


@contextmanager
def _month_end(stage: Stage, watch: Watch) -> Iterator[Callable[[], None]]:
    """A competing writer, until some jobs met it: the function it gives ends it then."""
    month_end = MonthEnd(stage.data / "shop.sqlite3")
    month_end.start()

    def until_it_hurt() -> None:
        conflicts = sum(effect.outcome == f"{RAISED}OperationalError" for effect in watch.effects)
        if conflicts >= ENOUGH_CONFLICTS:
            month_end.stop()

    try:
        yield until_it_hurt
    finally:
        month_end.stop()


def _watch(stage: Stage) -> Watch:
    from sample_project import celery_app  # Not before the environment is set.

    celery_app.loader.import_default_modules()
    return Watch(effects=EffectReader(stage.effects), broker_url=stage.broker_url, check=stage.check)


def _doors(stage: Stage) -> str:
    return f"""\
The shop is open, and takes a new job every second. Ctrl-C closes it.

  admin      http://127.0.0.1:{WEB_PORT}/admin/   user {OPERATOR}, password {stage.password}
  Beats      http://127.0.0.1:{WEB_PORT}/admin/beat_leader/beatterm/   {BEATS} run; who leads, and every term
             http://127.0.0.1:{WEB_PORT}/admin/beat_leader/tickrow/    what became of each due time
  Flower     http://127.0.0.1:{FLOWER_PORT}/        the same user and password
  logs       {stage.data / "logs"}

Some jobs fail, because the servers they talk to do. Mend those, then replay the dead letters in the admin:

  touch {stage.mended.path}
"""
