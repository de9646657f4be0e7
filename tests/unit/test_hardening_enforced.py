"""The table of enforced settings: which values are as good as ours, and where a row applies."""

from __future__ import annotations

import pytest

from hardening.effective import MISSING, current_value, project_values, transport_of
from hardening.enforced import ENFORCED, rows_for
from tests.helpers.hardened_apps import hardened_app, make_app

ROWS = {row.setting: row for row in ENFORCED}
NEWEST = (5, 7)


@pytest.mark.parametrize(
    ("setting", "accepted", "refused"),
    [
        ("task_acks_late", [True], [False, None]),
        ("task_reject_on_worker_lost", [True], [False, None]),
        ("task_acks_on_failure", [True], [False]),
        ("task_acks_on_timeout", [True], [False]),
        ("task_acks_on_failure_or_timeout", [True, None], [False]),
        ("worker_prefetch_multiplier", [1], [0, 2, 4]),
        ("accept_content", [["json"], ("application/json",)], [["json", "pickle"], ["yaml"], [], None]),
        ("result_accept_content", [None, ["json"]], [["pickle"], [], ["json", "msgpack"]]),
        ("task_serializer", ["json"], ["pickle", "yaml", "", None]),
        ("result_serializer", ["json"], ["pickle", None]),
        ("result_backend_always_retry", [True], [False]),
        ("result_backend_max_retries", [0, 5, 100, 2.0], [float("inf"), None, -1, True, "5", float("nan")]),
        ("broker_connection_retry", [True], [False]),
        ("broker_connection_retry_on_startup", [True], [False, None]),
        ("broker_connection_max_retries", [None], [0, 100]),
        ("broker_channel_error_retry", [True], [False]),
        ("broker_transport_options.unacked_restore_interval", [1, 0.5, 5], [0, -1, 6, None, "1"]),
        ("broker_transport_options.unacked_restore_throttle", [1, 5], [0, 10, None]),
        ("broker_transport_options.confirm_publish", [True], [False, None]),
    ],
)
def test_a_row_accepts_what_is_as_safe_as_its_value_and_nothing_else(setting, accepted, refused) -> None:
    row = ROWS[setting]

    assert [value for value in accepted if not row.allows(value)] == []
    assert [value for value in refused if row.allows(value)] == []


def test_every_row_is_covered_by_the_table_above() -> None:
    mark = next(m for m in test_a_row_accepts_what_is_as_safe_as_its_value_and_nothing_else.pytestmark)

    assert {case[0] for case in mark.args[1]} == set(ROWS)


@pytest.mark.parametrize("row", ENFORCED, ids=lambda row: row.setting)
def test_a_row_gives_its_reason_and_accepts_its_own_value(row) -> None:
    assert row.why.endswith(".")
    assert len(row.why) > 20
    assert row.code == "CH002"
    assert row.allows(row.value)


def test_settings_of_another_broker_are_left_alone() -> None:
    redis = {row.setting for row in rows_for(version=NEWEST, transport="redis")}
    amqp = {row.setting for row in rows_for(version=NEWEST, transport="amqp")}
    other = {row.setting for row in rows_for(version=NEWEST, transport="sqs")}

    assert redis - other == {
        "broker_channel_error_retry",
        "broker_transport_options.unacked_restore_interval",
        "broker_transport_options.unacked_restore_throttle",
    }
    assert amqp - other == {"broker_channel_error_retry", "broker_transport_options.confirm_publish"}


def test_the_split_settings_of_celery_5_7_replace_the_old_one() -> None:
    split = {"task_acks_on_failure", "task_acks_on_timeout"}
    old = {row.setting for row in rows_for(version=(5, 6), transport="redis")}
    new = {row.setting for row in rows_for(version=(5, 7), transport="redis")}

    assert split <= new
    assert not split & old
    written = {row.setting for row in ENFORCED if row.write and row.since <= (5, 7) < row.until}
    assert "task_acks_on_failure_or_timeout" not in written


@pytest.mark.parametrize(
    ("conf", "kind"),
    [
        ({"broker_url": "redis://h/0"}, "redis"),
        ({"broker_url": "rediss://h/0"}, "redis"),
        ({"broker_url": "valkey://h/0"}, "redis"),
        ({"broker_url": "redis+socket:///r"}, "redis"),
        ({"broker_url": "sentinel://a;sentinel://b"}, "redis"),
        ({"broker_url": ["redis://a", "redis://b"]}, "redis"),
        ({"broker_url": "amqp://h//"}, "amqp"),
        ({"broker_url": "amqps://h//"}, "amqp"),
        ({"broker_url": "pyamqp://h//"}, "amqp"),
        ({"broker_url": "amqp://a;amqp://b"}, "amqp"),
        ({"broker_url": "localhost", "broker_transport": "redis"}, "redis"),
        ({"broker_url": "SQS://"}, "sqs"),
        ({"broker_url": "memory://"}, "memory"),
        ({"broker_url": "amqp://w//", "broker_read_url": "redis://r/0"}, "redis"),
    ],
)
def test_the_kind_of_broker_is_read_as_celery_reads_it(conf, kind) -> None:
    app = make_app()
    app.conf.update(conf)

    assert transport_of(app) == kind


def test_no_broker_url_at_all_means_amqp_as_it_does_for_celery() -> None:
    app = make_app()
    app.conf.broker_url = None

    assert transport_of(app) == "amqp"


def test_only_what_the_project_set_counts_as_its_own() -> None:
    app = make_app(task_acks_late=True, broker_transport_options={"confirm_publish": False})
    assert app.conf.task_acks_late  # Looked at: configured.

    found = project_values(app, ENFORCED)

    assert found == {"task_acks_late": True, "broker_transport_options.confirm_publish": False}


@pytest.mark.parametrize("broker", ["redis://h/0", "amqp://h//"])
def test_every_row_of_a_broker_is_in_force_when_the_project_says_nothing(broker) -> None:
    app = hardened_app(broker_url=broker)
    app.finalize()

    for row in rows_for(version=NEWEST, transport=broker.partition(":")[0]):
        if row.write and row.setting in _known(app):
            assert current_value(app, row.setting) == row.value


def _known(app) -> set[str]:
    return {row.setting for row in ENFORCED if "." in row.setting or row.setting in app.conf}


def test_a_nested_option_is_added_beside_those_of_the_project() -> None:
    mine = {"visibility_timeout": 60, "unacked_restore_interval": 3}
    app = hardened_app(broker_url="redis://h/0", broker_transport_options=mine)
    app.finalize()

    assert app.conf.broker_transport_options == {
        "visibility_timeout": 60,
        "unacked_restore_interval": 3,
        "unacked_restore_throttle": 1,
    }
    assert mine == {"visibility_timeout": 60, "unacked_restore_interval": 3}
    assert current_value(app, "broker_transport_options.confirm_publish") is MISSING
