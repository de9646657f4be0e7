"""`python -m bench.counted LETTERS`: process of bench/counting.py; prints JSON."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import django

GROUPS = 200
_LIMIT_SECONDS = 600
_LOOK_SECONDS = 0.25


def main(letters: int) -> list[dict[str, Any]]:
    """Make the letters, forget that they were counted, and let a worker count them."""
    django.setup()
    from django.core.management import call_command

    from dlq.models import DeadLetter, GroupFacet, GroupHour, LetterGroup

    call_command("migrate", verbosity=0, skip_checks=True)
    call_command("dlq_make_letters", letters=letters, groups=GROUPS, seed=1, verbosity=0, stdout=sys.stderr)
    DeadLetter.objects.update(group=None)
    for model in (GroupFacet, GroupHour, LetterGroup):
        model.objects.all().delete()
    command = [sys.executable, "-m", "celery", "-A", "bench.project.celery", "worker", "-c", "1"]
    began = time.monotonic()
    worker = subprocess.Popen([*command, "--loglevel", "ERROR"], stdout=sys.stderr)
    try:
        first = None
        uncounted = DeadLetter.objects.filter(group__isnull=True)
        while uncounted.exists():
            if time.monotonic() - began > _LIMIT_SECONDS:
                raise TimeoutError(f"{uncounted.count()} letters are not counted yet")
            if first is None and LetterGroup.objects.exists():
                first = time.monotonic() - began
            time.sleep(_LOOK_SECONDS)
        took = time.monotonic() - began
    finally:
        worker.terminate()
        worker.wait(30)
    return [
        {
            "letters": letters,
            "groups": LetterGroup.objects.count(),
            "first_seconds": round(took if first is None else first, 1),
            "all_seconds": round(took, 1),
        }
    ]


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))
