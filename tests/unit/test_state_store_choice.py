"""Which store of shared state an app gets, and what a bad choice says."""

from __future__ import annotations

import pytest

from hardening.audit import audit
from hardening.conf import load_settings
from hardening.core.loading import BackendError
from hardening.store import chosen_store
from hardening.stores.database import DatabaseStore
from hardening.stores.memory import MemoryStore
from hardening.stores.redis import RedisStore
from tests.helpers.hardened_apps import make_app
from tests.helpers.hardening_fixtures import isolated

__all__ = ["isolated"]


def choose(app):
    return chosen_store(app, load_settings()[0])


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1:1/0",
        "rediss://127.0.0.1:1/0",
        "sentinel://127.0.0.1:1;sentinel://127.0.0.1:2",
        "redis+socket:///nowhere",
    ],
)
def test_where_the_broker_is_redis_it_keeps_the_state(url) -> None:
    app = make_app()
    app.conf.broker_url = url

    store = choose(app)

    assert isinstance(store, RedisStore)
    assert store._app is app


@pytest.mark.parametrize("url", ["amqp://127.0.0.1:1//", "memory://", "sqs://"])
def test_elsewhere_the_database_keeps_it(url) -> None:
    app = make_app()
    app.conf.broker_url = url

    assert isinstance(choose(app), DatabaseStore)


def test_each_app_has_one_store_until_the_setting_changes(settings) -> None:
    one, two = make_app(), make_app()

    assert choose(one) is choose(one)
    assert choose(one) is not choose(two)

    settings.HARDENING = {"STORE": {"BACKEND": "hardening.stores.memory.MemoryStore"}}
    assert isinstance(choose(one), MemoryStore)
    assert choose(one) is choose(one)


def test_the_setting_names_a_store_and_its_options(settings) -> None:
    settings.HARDENING = {
        "STORE": {"BACKEND": "hardening.stores.redis.RedisStore", "OPTIONS": {"url": "redis://127.0.0.1:1/5"}}
    }

    assert choose(make_app())._url == "redis://127.0.0.1:1/5"


class ForThisApp(MemoryStore):
    def __init__(self, app) -> None:
        super().__init__()
        self.app = app


def test_a_store_of_the_projects_own_gets_the_app_where_it_takes_one(settings) -> None:
    settings.HARDENING = {"STORE": {"BACKEND": f"{__name__}.ForThisApp"}}
    app = make_app()

    assert choose(app).app is app


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"BACKEND": "no.such.Store"}, "no.such.Store cannot be loaded"),
        ({"OPTIONS": {}}, "cannot be loaded"),
        ({"BACKEND": "collections.Counter"}, "does not fulfil StateStore"),
        ({"BACKEND": "hardening.stores.memory.MemoryStore", "OPTIONS": {"wrong": 1}}, "wrong"),
    ],
)
def test_a_store_that_cannot_be_used_is_a_finding(settings, setting, says) -> None:
    settings.HARDENING = {"STORE": setting}
    app = make_app()

    with pytest.raises(BackendError, match=says):
        choose(app)

    found = [finding for finding in audit(app) if finding.code == "CH015"]
    assert len(found) == 1
    assert says in found[0].what


def test_the_default_store_is_no_finding() -> None:
    assert not [finding for finding in audit(make_app()) if finding.code == "CH015"]
