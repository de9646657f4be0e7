"""Install the servers and the browser that the tests run against, and start nothing.

`python -m tests.install_servers` installs what is missing, on Debian and its kin as root; elsewhere it
prints what will be skipped and how to get it. `--dry-run` only prints.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

POLICY = Path("/usr/sbin/policy-rc.d")
# Exit status 101 is Debian's "action forbidden by policy": invoke-rc.d then starts nothing and is content.
POLICY_TEXT = "#!/bin/sh\nexit 101\n"


@dataclass(frozen=True, kw_only=True)
class Needed:
    """A program that tests run, and the Debian packages that bring it."""

    what: str
    programs: tuple[str, ...]
    packages: tuple[str, ...]

    def is_installed(self) -> bool:
        return all(_found(program) for program in self.programs)


NEEDED = (
    Needed(what="RabbitMQ", programs=("rabbitmq-server", "epmd"), packages=("rabbitmq-server",)),
    Needed(what="MariaDB", programs=("mariadbd", "mariadb-install-db"), packages=("mariadb-server",)),
    Needed(what="Redis", programs=("redis-server",), packages=("redis-server",)),
    Needed(what="PostgreSQL", programs=("initdb",), packages=("postgresql",)),
    Needed(what="Chromium", programs=("chromium",), packages=("chromium",)),
    Needed(what="libfaketime", programs=("faketime",), packages=("faketime",)),
)


def _found(program: str) -> bool:
    # Debian keeps daemons in sbin and PostgreSQL's programs by version, both off the usual PATH.
    places = [os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"]
    places += map(str, Path("/usr/lib/postgresql").glob("*/bin"))
    return shutil.which(program, path=os.pathsep.join(places)) is not None


def why_not(*, is_root: bool, has_apt: bool) -> str:
    """Why nothing can be installed here; empty when it can."""
    if not has_apt:
        return "this is not Debian: there is no apt-get"
    return "" if is_root else "not running as root"


@contextmanager
def nothing_starts(policy: Path = POLICY) -> Iterator[None]:
    """While this lasts, installing a package starts no service; a policy that was there before comes back."""
    kept = policy.with_name(policy.name + ".kept") if policy.exists() or policy.is_symlink() else None
    if kept is not None:
        policy.rename(kept)
    try:
        policy.write_text(POLICY_TEXT)
        policy.chmod(0o755)
        yield
    finally:
        policy.unlink(missing_ok=True)
        if kept is not None:
            kept.rename(policy)


def install(packages: Sequence[str]) -> None:
    """Install Debian packages; output is shown only when it fails."""
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    apt = ["apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=600"]
    with tempfile.TemporaryFile("w+") as output, nothing_starts():
        for command in (
            [*apt, "update"],
            [*apt, "install", "--no-install-recommends", *packages],
        ):
            done = subprocess.run(
                command,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
            # A failed update may be one unreachable mirror of several: the install decides.
            if done.returncode != 0 and command[-1] != "update":
                output.seek(0)
                print(output.read())
                raise SystemExit(f"{' '.join(command)} failed with status {done.returncode}")


def main(argv: Sequence[str] | None = None) -> int:
    """Install what is missing, or say what its absence means."""
    parser = argparse.ArgumentParser(prog="python -m tests.install_servers", description=__doc__)
    parser.add_argument("--dry-run", action="store_true", help="print what would be done and do nothing")
    options = parser.parse_args(argv)

    missing = [needed for needed in NEEDED if not needed.is_installed()]
    if not missing:
        print(f"all here: {', '.join(needed.what for needed in NEEDED)}")
        return 0
    packages = [package for needed in missing for package in needed.packages]
    reason = why_not(is_root=os.geteuid() == 0, has_apt=shutil.which("apt-get") is not None)
    if reason:
        print(f"not installed here ({reason}): {', '.join(needed.what for needed in missing)}")
        print("Tests that need them are skipped, or fail where the variable CI is set. The wheels of")
        print("requirements/ stand in for Redis and PostgreSQL. On Debian, as root:")
        print(f"    apt-get install {' '.join(packages)}")
        return 0
    if options.dry_run:
        print(f"would install: {' '.join(packages)}")
        return 0
    print(f"installing: {' '.join(packages)}", flush=True)
    install(packages)
    still_missing = [needed.what for needed in missing if not needed.is_installed()]
    if still_missing:
        print(f"installed, and yet not found: {', '.join(still_missing)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
