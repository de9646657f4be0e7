"""The admin shows what is down, whatever state the store is in, and acts only for those who may."""

from __future__ import annotations

import sys

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from hardening.conf import load_settings
from hardening.models import State
from hardening.store import chosen_store
from tests.helpers.hardened_apps import hardened_app
from tests.helpers.traffic import broken_store_settings, documents, fail, probing, spend

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("isolated")]

PAGE = "/admin/hardening/state/"
ACT = f"{PAGE}act/"
VIEW, CHANGE = "view_state", "change_state"
MEMORY = {"STORE": {"BACKEND": "hardening.stores.memory.MemoryStore"}}
BUTTONS = ('value="probe"', 'value="close"')


@pytest.fixture
def project(settings, monkeypatch):
    """Makes an app the project's, and returns its store; settings of hardening as keywords."""

    def make(broker_url="memory://", **hardening):
        settings.HARDENING = {**hardening, "APP": f"{__name__}.project_app"}
        app = hardened_app("project", task_time_limit=30, broker_url=broker_url)
        monkeypatch.setattr(sys.modules[__name__], "project_app", app, raising=False)

        @app.task(name="shop.charge", shared=False)
        def charge(): ...

        return chosen_store(app, load_settings()[0])

    return make


def page(client) -> str:
    response = client.get(PAGE)
    assert response.status_code == 200
    text: str = response.content.decode()
    return text


def act(client, operation: str, dependency: str = "stripe") -> str:
    response = client.post(ACT, {"operation": operation, "dependency": dependency}, follow=True)
    assert response.redirect_chain == [(PAGE, 302)]
    text: str = response.content.decode()
    return text


def test_the_page_needs_the_view_permission_and_stands_in_its_section(client, user_with, project) -> None:
    project(**MEMORY)
    assert client.get(PAGE).status_code == 302
    user_with(CHANGE)
    assert client.get(PAGE).status_code == 403
    user_with(VIEW)
    assert client.get(PAGE).status_code == 200
    index = client.get("/admin/").content.decode()
    assert "Celery hardening" in index
    assert "Outages and retry budgets" in index
    assert 'class="addlink"' not in index
    assert reverse("admin:hardening_state_changelist") == PAGE


def test_there_are_no_pages_of_rows(client, project, django_user_model) -> None:
    project()
    client.force_login(django_user_model.objects.create_superuser("root", password="x"))
    State.objects.create(key="k", value="{}", version=1, expires_at=1e12)

    for address in ("add/", "k/", "k/change/", "k/delete/", "k/history/"):
        assert client.get(PAGE + address).status_code == 404


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
def test_the_page_answers_to_get_only_and_the_buttons_to_post_only(
    client, user_with, project, method
) -> None:
    project(**MEMORY)
    user_with(VIEW, CHANGE)

    assert getattr(client, method)(PAGE).status_code == 405
    assert client.head(PAGE).status_code == 200
    assert client.get(f"{ACT}?operation=close&dependency=stripe").status_code == 405
    if method != "post":
        assert getattr(client, method)(ACT).status_code == 405


@pytest.mark.parametrize("kind", ["database", "redis"])
def test_what_workers_wrote_is_shown_whatever_the_store(client, user_with, project, kind, request) -> None:
    store = project(request.getfixturevalue("redis_url") if kind == "redis" else "memory://")
    assert type(store).__module__ == f"hardening.stores.{kind}"
    fail(store, "stripe", 25)
    fail(store, "mailgun", 3, task="shop.mail")
    spend(store, "shop.charge", 150)
    user_with(VIEW)

    text = page(client)

    assert f"hardening.stores.{kind}." in text
    assert '<th scope="row">stripe</th>' in text
    assert "<td>25</td>" in text
    assert '<td class="hardening-tasks">shop.charge</td>' in text
    assert "waits 5 s between probes" in text
    assert '<th scope="row">mailgun</th><td>3 of 20</td>' in text
    assert '<th scope="row">shop.charge</th><td>' in text


def test_a_quiet_system_says_none(client, user_with, project) -> None:
    project(**MEMORY)
    user_with(VIEW)

    text = page(client)

    assert text.count("<p>None.</p>") == 3
    assert "errornote" not in text


@pytest.mark.parametrize("broken", [broken_store_settings(), {"STORE": {"BACKEND": "no.such.Store"}}])
def test_a_store_that_does_not_answer_is_told_with_the_page(
    client, user_with, project, settings, broken
) -> None:
    project(**MEMORY)
    settings.HARDENING = {**settings.HARDENING, **broken}
    user_with(VIEW, CHANGE)

    text = page(client)

    assert 'class="errornote"' in text
    assert "does not answer" in text
    assert "every task and every retry is admitted" in text
    assert text.count("<p>Unknown.</p>") == 3
    assert "The store did not confirm the change" in act(client, "close")
    assert LogEntry.objects.count() == 0


def test_a_process_without_an_app_is_told_with_the_page(client, user_with, settings) -> None:
    settings.HARDENING = {"APP": "no.such.app"}
    user_with(VIEW)

    assert "no.such.app" in page(client)


def test_a_task_module_that_breaks_does_not_hide_the_outages(client, user_with, project, monkeypatch) -> None:
    store = project(**MEMORY)
    fail(store, "stripe", 20)

    def breaks():
        raise ImportError("no such module")

    app = sys.modules[__name__].project_app
    monkeypatch.setattr(app.loader, "import_default_modules", breaks)
    user_with(VIEW)

    assert '<th scope="row">stripe</th>' in page(client)


@pytest.mark.parametrize("name", ['x"><script>alert(1)</script>', "</th><b>", "'\"&amp;"])
def test_hostile_names_break_out_of_neither_page_nor_form(client, user_with, project, name) -> None:
    store = project(**MEMORY)
    fail(store, name, 20, task=name)
    probing(store, name, name)
    user_with(VIEW, CHANGE)

    text = page(client)

    assert "<script>alert" not in text
    assert "<b>" not in text
    assert "<script>alert" not in act(client, "close", name)
    assert documents(store) == {}


def test_who_may_only_look_sees_no_button_and_changes_nothing(client, user_with, project) -> None:
    store = project(**MEMORY)
    fail(store, "stripe", 20)
    before = documents(store)
    user_with(VIEW)

    assert not any(button in page(client) for button in BUTTONS)
    for operation in ("probe", "close"):
        assert client.post(ACT, {"operation": operation, "dependency": "stripe"}).status_code == 403
    user_with(CHANGE)
    assert client.post(ACT, {"operation": "close", "dependency": "stripe"}).status_code == 403
    assert (documents(store), LogEntry.objects.count()) == (before, 0)


def test_a_post_without_a_csrf_token_is_forbidden(project, django_user_model) -> None:
    store = project(**MEMORY)
    fail(store, "stripe", 20)
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(django_user_model.objects.create_superuser("root", password="x"))

    assert strict.post(ACT, {"operation": "close", "dependency": "stripe"}).status_code == 403
    assert "stripe" in documents(store)


@pytest.mark.parametrize("kind", ["database", "redis"])
def test_an_outage_is_closed_alone_and_the_log_says_by_whom(
    client, user_with, project, kind, request
) -> None:
    store = project(request.getfixturevalue("redis_url") if kind == "redis" else "memory://")
    fail(store, "stripe", 20)
    fail(store, "mailgun", 20)
    user = user_with(VIEW, CHANGE)
    assert all(button in page(client) for button in BUTTONS)

    text = act(client, "close")

    assert "The outage of stripe is closed" in text
    assert list(documents(store)) == ["mailgun"]
    entry = LogEntry.objects.get()
    assert (entry.user, entry.object_id, entry.object_repr, entry.change_message) == (
        user,
        "stripe",
        "stripe",
        "Closed the outage.",
    )


def test_probe_now_lets_the_next_task_probe(client, user_with, project) -> None:
    store = project(**MEMORY)
    fail(store, "stripe", 20)
    user_with(VIEW, CHANGE)
    assert "as soon as a task comes" not in page(client)

    text = act(client, "probe")

    assert "The next task that depends on stripe is run" in text
    assert "as soon as a task comes" in text
    after = documents(store)["stripe"]
    assert (after["prober"], after["failures"]) == (None, 20)
    assert after["next_probe_at"] <= store.read("outages").now
    assert LogEntry.objects.get().change_message == "Asked for a probe at once."


def test_probe_now_takes_no_probe_away(client, user_with, project) -> None:
    store = project(**MEMORY)
    fail(store, "stripe", 20)
    probing(store, "stripe", "task-1")
    before = documents(store)
    user_with(VIEW, CHANGE)

    text = act(client, "probe")

    assert "Nothing was changed: stripe is being probed now." in text
    assert "running: task task-1" in text
    assert (documents(store), LogEntry.objects.count()) == (before, 0)


def test_an_outage_that_ended_meanwhile_is_told_and_a_run_is_left_alone(client, user_with, project) -> None:
    store = project(**MEMORY)
    fail(store, "stripe", 3)
    user_with(VIEW, CHANGE)

    for operation in ("probe", "close"):
        assert "Nothing was changed: stripe is not down any more." in act(client, operation)
        assert "is not down any more" in act(client, operation, "never heard of")
    assert documents(store)["stripe"]["failures"] == 3
    assert LogEntry.objects.count() == 0


def test_a_post_that_names_nothing_changes_nothing(client, user_with, project) -> None:
    store = project(**MEMORY)
    fail(store, "stripe", 20)
    user_with(VIEW, CHANGE)

    for data in ({}, {"operation": "drop", "dependency": "stripe"}, {"operation": "close"}):
        assert "Nothing was chosen" in client.post(ACT, data, follow=True).content.decode()
    assert "stripe" in documents(store)


def test_two_operators_at_once_close_it_once(client, user_with, project) -> None:
    store = project(**MEMORY)
    fail(store, "stripe", 20)
    user_with(VIEW, CHANGE)

    act(client, "close")
    act(client, "close")

    assert LogEntry.objects.count() == 1
