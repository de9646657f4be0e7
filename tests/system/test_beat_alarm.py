"""When the last Beat is gone the workers notice, and when one is back as well."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack

from tests.helpers.alerting import Postbox
from tests.helpers.wait import wait_until

from .beats import Beats


def test_workers_raise_an_alarm_within_half_a_minute_when_nobody_leads_and_take_it_back(new_stage) -> None:
    settings = {
        "CELERY_BEAT_SCHEDULE": {"often": {"task": "not here", "schedule": 1.0, "options": {"queue": "q"}}},
        "BEAT_LEADER": {"SOURCE": "code"},
    }
    with new_stage("redis") as stage, Postbox() as box, ExitStack() as stack:
        channel = {"BACKEND": "hardening.alerts.channels.webhook.WebhookChannel", "OPTIONS": {"url": box.url}}
        worker = {
            "TEST_HARDENING": json.dumps({"ALERTS": {"CHANNELS": [{**channel, "NAME": "hook"}]}}),
            "TEST_CELERY": json.dumps(settings),
        }
        beats = Beats(stage, 1000, settings, stack)
        beat = beats.start()
        stage.worker(concurrency=1, **worker)
        wait_until(lambda: "this Beat leads" in beat.log_text(), 30, beats.logs)
        status = stage.manage("beat_leader_status", "--json", check=False, **worker)
        assert json.loads(status.stdout.splitlines()[0])["leader"], status.stdout

        beat.kill()
        killed = time.monotonic()
        wait_until(lambda: box.posted, 60, stage.logs)

        assert time.monotonic() - killed <= 30
        assert [each.notice["condition"] for each in box.posted] == ["beat.no_leader"]
        status = stage.manage("beat_leader_status", check=False, **worker)
        assert status.returncode == 1
        assert "nobody leads" in status.stderr

        beats.start()
        wait_until(lambda: len(box.posted) == 2, 60, stage.logs)
        assert (box.posted[1].notice["condition"], box.posted[1].notice["state"]) == (
            "beat.no_leader",
            "resolved",
        )
