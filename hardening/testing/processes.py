"""Start a real process, wait for what it does, end it and everything that it started."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self, TypedDict

from hardening.testing.errors import ProcessEnded, ProcessError, ProcessTimeout

POLL_SECONDS = 0.02
LOG_TAIL_CHARS = 4000


# The kernel's parent-death signal fires when the *thread* that forked ends, not the process. Forking from
# one thread that lives as long as the interpreter lets short-lived threads start processes. It is started
# here: an interrupt in the middle of its start would leave a thread that the interpreter waits for for ever.
_SPAWNER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="process-spawner")
_SPAWNER.submit(int).result()


@cache
def _die_with_parent() -> tuple[str, ...]:
    # A wrapper instead of preexec_fn: no Python code runs between fork and exec, and the death signal is
    # set after the change of user, which would have cleared it. Without setpriv (not Linux) a killed test
    # run leaves orphans.
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", "KILL", "--") if setpriv else ()


class ManagedProcess:
    """One command in its own session, with its log in a file; `stop` leaves nothing of it behind.

    The instance may be started again after it ended: the log then goes on in the same file. A process
    whose test run is killed dies with it. Use it as a context manager, or call `stop`.
    """

    def __init__(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        log_path: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        user: str | None = None,
        name: str = "",
        stop_signal: signal.Signals = signal.SIGTERM,
        stop_timeout_seconds: float = 15.0,
    ) -> None:
        """`env` replaces the whole environment; `user` needs root; `stop_signal` is the graceful one."""
        self.command = [os.fspath(part) for part in command]
        self.log_path = log_path
        self.name = name or Path(self.command[0]).name
        self.stop_signal = stop_signal
        self.stop_timeout_seconds = stop_timeout_seconds
        self._env = None if env is None else dict(env)
        self._cwd = cwd
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None
        self._run_begins_at = 0

    def __enter__(self) -> Self:
        if self._process is None:
            self.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.state}>"

    @property
    def pid(self) -> int:
        """The process id of the current or last run; also its process group and session."""
        if self._process is None:
            raise ProcessError(f"{self.name} was never started")
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status once it has been reaped; negative for a signal, as in `subprocess`."""
        return None if self._process is None else self._process.returncode

    @property
    def state(self) -> str:
        """One of `created`, `running`, `exited`."""
        if self._process is None:
            return "created"
        return "running" if self.is_running else "exited"

    @property
    def is_running(self) -> bool:
        """Whether the process itself lives; when it has ended, what was left of its group is ended too."""
        process = self._process
        if process is None or process.returncode is not None:
            return False
        # WNOWAIT: an unreaped leader keeps its group id from being reused, so the group can be killed safely.
        if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return True
        self._reap()
        return False

    def start(self) -> Self:
        """Start the command. Returns at once; follow with one of the `wait_...` methods."""
        if self.is_running:
            raise ProcessError(f"{self.name} is running already (pid {self.pid})")
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        self._run_begins_at = self.log_size()
        spawned = _SPAWNER.submit(self._spawn)
        try:
            spawned.result()
        except BaseException:
            # An interrupt comes to us and not to the thread: what it starts all the same is ended here.
            wait([spawned])
            if spawned.exception() is None:
                self.kill()
            raise
        return self

    def _spawn(self) -> None:
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*_die_with_parent(), *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._env,
                cwd=self._cwd,
                start_new_session=True,
                **_credentials(self._user),
            )

    def send_signal(self, sig: signal.Signals | int) -> None:
        """Signal the process itself, not what it started. Does nothing when it has ended."""
        if self.is_running:
            os.kill(self.pid, sig)

    def signal_group(self, sig: signal.Signals | int) -> None:
        """Signal the process and all that it started in its session's first group."""
        if self.is_running:
            os.killpg(self.pid, sig)

    def kill(self, sig: signal.Signals | int | str = signal.SIGKILL, *, timeout: float | None = None) -> None:
        """As `docker kill` would: SIGKILL ends the whole group, any other signal goes to the process alone.

        After SIGKILL the process is gone and reaped. After another signal this returns at once, unless
        `timeout` is given: then it waits for the exit. `send_signal` can kill the process without its group.
        """
        sig = signal.Signals[sig] if isinstance(sig, str) else signal.Signals(sig)
        if sig == signal.SIGKILL:
            if self.is_running:
                self.signal_group(sig)
                self.wait(timeout=timeout or 10.0)
        else:
            self.send_signal(sig)
            if timeout is not None:
                self.wait(timeout=timeout)

    def pause(self) -> None:
        """Freeze the whole group (SIGSTOP), as a stalled machine would."""
        self.signal_group(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused group go on."""
        self.signal_group(signal.SIGCONT)

    def stop(self, *, timeout: float | None = None) -> int | None:
        """End it gracefully, by SIGKILL if that takes too long; returns the exit status. May be repeated."""
        if self.is_running:
            self.send_signal(self.stop_signal)
            self.resume()  # a paused process could not obey
            try:
                self.wait(timeout=self.stop_timeout_seconds if timeout is None else timeout)
            except ProcessTimeout:
                self.kill()
        return self.returncode

    def restart(self) -> Self:
        """`stop`, then `start`."""
        self.stop()
        return self.start()

    def wait(self, *, timeout: float = 30.0) -> int:
        """Wait for the exit and return its status."""
        deadline = time.monotonic() + timeout
        while self.is_running:
            if time.monotonic() >= deadline:
                raise ProcessTimeout(f"{self.name} still ran after {timeout} s\n{self.log_tail()}")
            time.sleep(POLL_SECONDS)
        if self.returncode is None:
            raise ProcessError(f"{self.name} was never started")
        return self.returncode

    def wait_ready(
        self, predicate: Callable[[], bool], *, timeout: float = 30.0, what: str = "get ready"
    ) -> None:
        """Wait until `predicate` is true; fails at once when the process ends first."""
        deadline = time.monotonic() + timeout
        while True:
            alive = self.is_running  # read before the predicate: its last words count even if it is gone now
            if predicate():
                return
            if not alive:
                raise ProcessEnded(
                    f"{self.name} ended ({self.returncode}) and did not {what}\n{self.log_tail()}"
                )
            if time.monotonic() >= deadline:
                raise ProcessTimeout(f"{self.name} did not {what} in {timeout} s\n{self.log_tail()}")
            time.sleep(POLL_SECONDS)

    def wait_for_log(
        self, pattern: str | re.Pattern[str], *, timeout: float = 30.0, since: int | None = None
    ) -> re.Match[str]:
        """Wait for a substring, or a compiled regex, in the log and return the match.

        Only the log of the current run is looked at; to await a new line pass an earlier `log_size()`.
        """
        regex = re.compile(re.escape(pattern)) if isinstance(pattern, str) else pattern
        found: list[re.Match[str]] = []

        def appeared() -> bool:
            match = regex.search(self.log_text(since=since))
            if match:
                found.append(match)
            return match is not None

        self.wait_ready(appeared, timeout=timeout, what=f"log {regex.pattern!r}")
        return found[0]

    def log_size(self) -> int:
        """The log's present length in bytes: a mark for `since`."""
        return self.log_path.stat().st_size if self.log_path.exists() else 0

    def log_text(self, *, since: int | None = None) -> str:
        """The log of the current run, or from the byte `since` on; `since=0` is the log of all runs."""
        if not self.log_path.exists():
            return ""
        with self.log_path.open("rb") as log:
            log.seek(self._run_begins_at if since is None else since)
            return log.read().decode(errors="replace")

    def log_tail(self) -> str:
        """The end of the log, for an error message."""
        return f"--- end of {self.log_path.name} ---\n{self.log_text()[-LOG_TAIL_CHARS:]}"

    def _reap(self) -> None:
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class _Credentials(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


def _credentials(user: str | None) -> _Credentials:
    if user is None:
        return {}
    import pwd

    account = pwd.getpwnam(user)
    # The supplementary groups of root must go as well: what those may read, the server could.
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
