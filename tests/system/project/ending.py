"""Whoever imports it is gone."""

from __future__ import annotations

import os
import signal

os.kill(os.getpid(), signal.SIGKILL)
