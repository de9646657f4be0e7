"""The command line: options, the data directory, and one readable line for each way it can go wrong."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hardening.testing.errors import ProcessError, ServerMissing
from sample_project.demo.errors import DemoError
from sample_project.demo.interrupts import held, refuse_interrupts, take_interrupts
from sample_project.demo.jobs import FEWEST
from sample_project.demo.play import play, stay
from sample_project.demo.progress import say
from sample_project.demo.stage import Stage, require_free_doors

INTERRUPTED = 130
DEFAULT_JOBS = 300


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit status: 0 only when every job is accounted for."""
    options = _options(argv)
    take_interrupts()
    try:
        if options.stay:
            require_free_doors()
        with _data_directory(options.data, keep=options.keep or options.stay) as data, Stage(data) as stage:
            return stay(stage, options.jobs) if options.stay else play(stage, options.jobs)
    except KeyboardInterrupt:
        say("interrupted; nothing is left running")
        return INTERRUPTED
    except (DemoError, ProcessError, ServerMissing) as exc:
        say(f"\ndemo: {exc}")
        return 1


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m sample_project.demo",
        description="Run a small shop's jobs, good and bad, and account for every one of them.",
    )
    parser.add_argument(
        "--jobs", type=_jobs, default=DEFAULT_JOBS, metavar="N", help="how many (default: %(default)s)"
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="an empty or new directory to keep the data in (default: a temporary one)",
    )
    parser.add_argument("--keep", action="store_true", help="keep the temporary directory")
    parser.add_argument(
        "--stay", action="store_true", help="keep the shop open, with its admin and Flower, until Ctrl-C"
    )
    return parser.parse_args(argv)


def _jobs(text: str) -> int:
    number = int(text)
    if number < FEWEST:
        raise argparse.ArgumentTypeError(f"at least {FEWEST}, one of each kind")
    return number


@contextmanager
def _data_directory(given: Path | None, *, keep: bool) -> Iterator[Path]:
    """The directory given, which must be empty, or a temporary one that is removed in the end."""
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        if any(given.iterdir()):
            raise DemoError(f"{given} is not empty: the ledger of this run would count an earlier one")
        yield given.resolve()
        return
    with ExitStack() as ends:
        with held():
            temporary = Path(tempfile.mkdtemp(prefix="shop-"))
            ends.callback(_leave, temporary, keep=keep)
        yield temporary


def _leave(temporary: Path, *, keep: bool) -> None:
    refuse_interrupts()
    if keep:
        say(f"the data is kept in {temporary}")
    else:
        shutil.rmtree(temporary, ignore_errors=True)
