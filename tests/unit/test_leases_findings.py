"""CH018: what a project's settings say against leases."""

from __future__ import annotations

import pytest

from hardening.core.findings import Level
from hardening.leases.findings import lease_findings
from hardening.leases.terms import Lease
from tests.helpers.hardened_apps import hardened_app


def codes(transport: str = "redis", lease: Lease | None = None, **conf) -> list[tuple[str, Level]]:
    app = hardened_app(**conf)
    found = lease_findings(app, transport, lease or Lease())
    return [(finding.code, finding.level) for finding in found]


def test_the_defaults_have_nothing_against_them() -> None:
    assert codes() == []


def test_a_window_between_pop_and_lease_is_warned_about() -> None:
    assert codes(lease=Lease(atomic_take=False)) == [("CH018", Level.WARNING)]


def test_without_acknowledgements_a_worker_does_not_start() -> None:
    assert codes(broker_transport_options={"ack_emulation": False}) == [("CH018", Level.ERROR)]


def test_a_project_that_wants_running_tasks_cancelled_is_told_that_it_is_not_obeyed() -> None:
    assert codes(worker_cancel_long_running_tasks_on_connection_loss=True) == [("CH018", Level.WARNING)]


@pytest.mark.parametrize("transport", ["amqp", "sqs"])
def test_other_brokers_are_left_alone(transport: str) -> None:
    assert codes(transport, Lease(atomic_take=False)) == []
