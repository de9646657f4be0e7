"""Installing servers: says what it would do, starts nothing, restores what it changed."""

from __future__ import annotations

import pytest

from tests import install_servers
from tests.install_servers import Needed, main, nothing_starts, why_not

ABSENT = Needed(what="Nonesuch", programs=("no-such-program-anywhere",), packages=("nonesuch-server",))
PRESENT = Needed(what="Shell", programs=("sh",), packages=("dash",))


def test_dry_run_names_only_what_is_missing(monkeypatch, capsys):
    monkeypatch.setattr(install_servers, "NEEDED", (PRESENT, ABSENT))
    monkeypatch.setattr(install_servers, "why_not", lambda **_: "")
    assert main(["--dry-run"]) == 0
    assert capsys.readouterr().out == "would install: nonesuch-server\n"


def test_nothing_is_done_when_all_is_there(monkeypatch, capsys):
    monkeypatch.setattr(install_servers, "NEEDED", (PRESENT,))
    assert main([]) == 0
    assert capsys.readouterr().out == "all here: Shell\n"


def test_where_it_cannot_install_it_says_why_and_how(monkeypatch, capsys):
    monkeypatch.setattr(install_servers, "NEEDED", (ABSENT,))
    monkeypatch.setattr(install_servers, "why_not", lambda **_: "not running as root")
    assert main([]) == 0
    said = capsys.readouterr().out
    assert "not installed here (not running as root): Nonesuch" in said
    assert "apt-get install nonesuch-server" in said


@pytest.mark.parametrize(
    ("is_root", "has_apt", "reason"),
    [
        (True, True, ""),
        (False, True, "not running as root"),
        (True, False, "this is not Debian: there is no apt-get"),
    ],
)
def test_only_root_on_debian_installs(is_root, has_apt, reason):
    assert why_not(is_root=is_root, has_apt=has_apt) == reason


def test_the_policy_forbids_starting_and_leaves_no_trace(tmp_path):
    policy = tmp_path / "policy-rc.d"
    with nothing_starts(policy):
        assert "exit 101" in policy.read_text()
        assert policy.stat().st_mode & 0o111
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_policy_comes_back_even_after_a_failure(tmp_path):
    policy = tmp_path / "policy-rc.d"
    policy.write_text("the machine's own")
    with pytest.raises(RuntimeError), nothing_starts(policy):
        raise RuntimeError
    assert policy.read_text() == "the machine's own"
    assert list(tmp_path.iterdir()) == [policy]
