"""`python -m hardening.chaos`: run, report, and the ledger as the last line; 1 unless it balances.

Servers, workers and their data are this run's own. See docs/how-to/chaos.md.
"""

from __future__ import annotations

import argparse
import json
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from hardening.testing.errors import ProcessError, ServerMissing

from .errors import ChaosError
from .options import HARDENED, PLAIN, Options
from .overlay import LEASE_SECONDS
from .plan import Fault, Kind

__all__ = ["main", "parser"]

INTERRUPTED, FAILED = 130, 2
_PLAIN_PATIENCE_SECONDS = 100.0
"""Longer than the visibility timeout of 60 s that plain Celery gets here."""


def main(argv: Sequence[str] | None = None) -> int:
    """0: the ledger balances; 1: it does not; 2: there was no run."""
    from .run import interruptible

    arguments = parser().parse_args(argv)
    options = _options(arguments)
    interruptible()
    try:
        with _directory(arguments.keep) as directory:
            if arguments.plain:
                return _both(options, directory)
            return _one(options, directory)
    except KeyboardInterrupt:
        say("interrupted; nothing is left running")
        return INTERRUPTED
    except (ChaosError, ProcessError, ServerMissing) as exc:
        say(f"chaos: {exc}")
        return FAILED


def say(text: str) -> None:
    """For whoever watches; standard output is the report's."""
    print(text, file=sys.stderr, flush=True)


def _one(options: Options, directory: Path) -> int:
    from .report import again, as_data, rendered
    from .run import run

    outcome = run(options, directory, say)
    data = as_data(outcome)
    (directory / "report.json").write_text(json.dumps(data, indent=2))
    print(rendered(outcome))
    if not outcome.ledger.balances and options.variant == HARDENED:
        print(f"run it again: {again(options)}")
    print(data["line"], flush=True)
    return 0 if outcome.ledger.balances else 1


def _both(options: Options, directory: Path) -> int:
    """Each in a process of its own: Django is set up once in a process."""
    from .report import again, side_by_side

    hardened = _in_a_process(options, directory / HARDENED)
    # As long again as the hardened run took, and a visibility timeout: then what is not done is not done.
    seconds = 2 * hardened["seconds"] + _PLAIN_PATIENCE_SECONDS
    plain = _in_a_process(
        replace(options, variant=PLAIN, most_seconds=seconds, patience_seconds=_PLAIN_PATIENCE_SECONDS),
        directory / PLAIN,
    )
    print(side_by_side(hardened, plain))
    print(f"plain, {plain['line']}")
    if not hardened["balances"]:
        print(f"run it again: {again(options)}")
    print(hardened["line"], flush=True)
    return 0 if hardened["balances"] else 1


def _in_a_process(options: Options, directory: Path) -> dict[str, Any]:
    from .report import again

    command = [sys.executable, *shlex.split(again(options))[1:], "--keep", str(directory)]
    command += ["--variant", options.variant, "--patience", str(options.patience_seconds)]
    if options.most_seconds is not None:
        command += ["--most-seconds", str(options.most_seconds)]
    for argument in options.worker_args:
        command.append(f"--worker-arg={argument}")
    done = subprocess.run(command, check=False)
    report = directory / "report.json"
    if done.returncode not in (0, 1) or not report.exists():
        raise ChaosError(f"the {options.variant} run did not come to its end")
    data: dict[str, Any] = json.loads(report.read_text())
    return data


@contextmanager
def _directory(keep: Path | None) -> Iterator[Path]:
    """The one given, new or empty, else a temporary one that is removed in the end."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise ChaosError(f"{keep} is not empty: the ledger would count an earlier run")
        yield keep.resolve()
        return
    temporary = Path(tempfile.mkdtemp(prefix="chaos-"))
    try:
        yield temporary.resolve()
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _options(arguments: argparse.Namespace) -> Options:
    seed = secrets.randbelow(1_000_000) if arguments.seed is None else arguments.seed
    return Options(
        seed=seed,
        broker=arguments.broker,
        tasks=arguments.tasks,
        pool=arguments.pool,
        workers=arguments.workers,
        concurrency=arguments.concurrency,
        variant=arguments.variant,
        app=arguments.app,
        settings=arguments.settings,
        send=arguments.send,
        database=arguments.database,
        without=arguments.without,
        faults=arguments.faults,
        as_configured=arguments.as_configured,
        lease_seconds=arguments.lease,
        most_seconds=arguments.most_seconds,
        patience_seconds=arguments.patience,
        worker_args=tuple(arguments.worker_arg),
    )


def parser() -> argparse.ArgumentParser:
    """All options."""
    parser = argparse.ArgumentParser(prog="python -m hardening.chaos", description=__doc__)
    add = parser.add_argument
    add("--seed", type=int, help="what is published and which faults follow (default: another one each time)")
    add("--broker", choices=("redis", "rabbitmq"), default="redis")
    add("--tasks", type=int, default=1000, metavar="N", help="how many (default: %(default)s)")
    add("--pool", choices=("prefork", "gevent"), default="prefork")
    add("--workers", type=int, default=3, metavar="N", help="(default: %(default)s)")
    add("--concurrency", type=int, default=4, metavar="N", help="of each (default: %(default)s)")
    add("--plain", action="store_true", help="also without hardening, and print both side by side")
    add("--app", help="your project's Celery app, as for celery -A (default: the kit's own project)")
    add("--settings", metavar="MODULE", help="its Django settings (default: found)")
    add("--send", metavar="MODULE:FUNCTION", help="publishes N tasks of yours, given N")
    add("--database", choices=("auto", "postgres", "sqlite"), default="auto", help="(default: %(default)s)")
    add("--without", type=_names, default=(), metavar="NAME,...", help=f"of {', '.join(_NAMES)}")
    add(
        "--faults",
        type=_numbers,
        metavar="NAME=N,...",
        help="how many of each, where the usual is not wanted",
    )
    add(
        "--lease",
        type=float,
        default=LEASE_SECONDS,
        metavar="SECONDS",
        help="on Redis (default: %(default)s)",
    )
    add("--as-configured", action="store_true", help="keep the timings of your settings.HARDENING")
    add(
        "--worker-arg",
        action="append",
        default=[],
        metavar="ARG",
        help="for each worker, e.g. --worker-arg=-Qa,b",
    )
    add("--patience", type=float, default=60.0, metavar="SECONDS", help="without any progress (default: 60)")
    add("--most-seconds", type=float, metavar="SECONDS", help="the longest that it may take")
    add("--keep", type=Path, metavar="DIR", help="keep logs, witness and report.json in this new directory")
    add("--variant", choices=(HARDENED, PLAIN), default=HARDENED, help=argparse.SUPPRESS)
    return parser


_NAMES = (*(kind.value for kind in Kind if kind is not Kind.QUICK), *(fault.value for fault in Fault))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name for name in text.split(",") if name)
    if unknown := set(names) - set(_NAMES):
        raise argparse.ArgumentTypeError(f"no such kind or fault: {', '.join(sorted(unknown))}")
    return names


def _numbers(text: str) -> dict[str, int]:
    numbers = {}
    for part in filter(None, text.split(",")):
        name, _, number = part.partition("=")
        if name not in {fault.value for fault in Fault} or not number.isdigit():
            raise argparse.ArgumentTypeError(f"not NAME=N of a fault: {part!r}")
        numbers[name] = int(number)
    return numbers


if __name__ == "__main__":
    sys.exit(main())
