"""Workers that are restarted in turns under load lose nothing. The chaos tests do it ten times as often."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.rolling_restart import roll

from .stage import STRAIGHT
from .test_shutdown_drain import waiting

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize(("broker", "pool"), STRAIGHT)
def test_five_restarts_under_load_lose_no_task_and_count_no_attempt(
    new_stage: Callable[..., Any], broker: str, pool: str
) -> None:
    with new_stage(broker) as stage:
        ledger = roll(
            stage,
            pool=pool,
            rounds=5,
            letters=lambda: len(stage.letters()),
            left=lambda: waiting(stage) + stage.unacked(),
        )

    assert ledger.lost == [], ledger
    assert ledger.unexplained == [], ledger.evidence()
    assert set(ledger.retries) == {"0"}, ledger
    assert ledger.letters == 0
    assert set(ledger.exits) == {0}, ledger
