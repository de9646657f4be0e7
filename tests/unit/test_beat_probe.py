"""The probe judges the age of the last finished tick, by a clock that nobody sets, without the project."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from beat_leader import heartbeat, probe
from beat_leader.heartbeat import Heartbeat, heartbeat_path
from beat_leader.register import Role, Sign
from beat_leader.stores.memory import Register
from beat_leader.ticks import TicksUnavailable

SIGN = Sign(
    holder="here:1:ab", role=Role.LEADER, epoch=3, tick_seconds=0.1, lag_seconds=0.0, schedules=2, pid=1
)


class _Down(Register):
    def tell(self, sign):
        raise TicksUnavailable("away")


def judged(*, age=1.0, role="any", boot="b", of=None):
    sign = {"holder": "x", "pid": 1, "role": "standby", "steady": 100.0, "boot": "b", "problem": ""} | (
        of or {}
    )
    return probe.judge(sign, max_age=30.0, role=role, now=100.0 + age, boot=boot)[0]


def test_a_fresh_tick_is_ticking_and_an_old_one_is_not():
    assert judged(age=30.0) == 0
    assert judged(age=30.1) == 1


def test_a_sign_from_the_future_or_from_before_a_reboot_is_not_believed():
    assert judged(age=-1.0) == 1
    assert judged(boot="another") == 1


def test_a_standby_is_judged_as_a_leader_is_unless_a_role_is_asked_for():
    assert judged(role="standby") == 0
    assert judged(role="leader") == 1


def test_a_store_that_is_down_does_not_keep_the_file_from_telling_of_the_tick(tmp_path):
    path = tmp_path / "beat.json"

    Heartbeat(_Down(), path).tell(SIGN)

    assert probe.main(["--file", str(path), "--role", "leader"]) == 0


def test_a_sign_is_given_once_a_second_at_most_and_a_clean_stop_takes_the_file_away(tmp_path):
    path, register, moment = tmp_path / "beat.json", Register(lambda: moment[0]), [100.0]
    beat = Heartbeat(register, path, now=lambda: moment[0])

    told = []
    for wait in (0.0, 0.5, 0.6):
        moment[0] += wait
        beat.tell(SIGN)
        told.append(register.signs()[0].at)
    assert told == [100.0, 100.0, 101.1]

    beat.leave(SIGN.holder)
    assert (path.exists(), register.signs()) == (False, [])


def test_a_directory_that_somebody_else_made_is_not_written_to(tmp_path, monkeypatch, caplog):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "ours").symlink_to(tmp_path / "theirs")
    monkeypatch.setattr(heartbeat, "default_directory", lambda: tmp_path / "ours")
    register = Register()

    Heartbeat(register, heartbeat_path(None)).tell(SIGN)

    assert list((tmp_path / "theirs").iterdir()) == []
    assert len(register.signs()) == 1
    assert "HEARTBEAT_FILE" in caplog.text


@pytest.mark.parametrize("text", ["", "{", "[]", json.dumps({"pid": 1}), "null"], ids=range(5))
def test_a_file_that_tells_nothing_is_not_a_beat_that_ticks(tmp_path, text):
    path = tmp_path / "beat.json"
    path.write_text(text)

    assert probe.main(["--file", str(path)]) == 2


def test_the_probe_imports_neither_django_nor_celery_nor_the_project(tmp_path):
    said = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "beat_leader.probe", "--file", str(tmp_path / "none")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert said.returncode == 2, said.stderr[-500:]
    names = {line.rpartition("|")[2].strip().partition(".")[0] for line in said.stderr.splitlines()}
    assert "beat_leader" in names
    assert not names & {"django", "celery", "kombu", "hardening", "redis"}
