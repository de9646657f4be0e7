#!/usr/bin/env python
"""Django's command line for the shop: `python sample_project/manage.py` from any directory."""

import os
import sys
from pathlib import Path


def main() -> None:
    # A script's own directory is first on the path, where this package's celery.py would hide Celery itself.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "sample_project.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
