"""The page of delayed tasks: who may see and cancel, what is shown, and 100,000 of them."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from hardening.delayed.admin import PER_PAGE
from hardening.delayed.entry import Fate
from hardening.models import DelayedTask
from tests.helpers.delayed_tasks import BROKEN, MEMORY, delay, delayed_store_of
from tests.helpers.hardened_apps import hardened_app

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("isolated")]

PAGE = "/admin/hardening/delayedtask/"
CANCEL = f"{PAGE}cancel/"
VIEW, CHANGE = "view_delayedtask", "change_delayedtask"


@pytest.fixture
def project(settings, monkeypatch):
    def make(hardening: dict[str, Any] = MEMORY) -> Any:
        settings.HARDENING = {**hardening, "APP": f"{__name__}.project_app"}
        app = hardened_app("project", task_time_limit=30)
        monkeypatch.setattr(sys.modules[__name__], "project_app", app, raising=False)
        return app

    return make


def page(client, **query: Any) -> str:
    response = client.get(PAGE, query)
    assert response.status_code == 200
    return str(response.content.decode())


def test_the_page_needs_the_view_permission_and_stands_in_its_section(client, user_with, project) -> None:
    project()
    assert client.get(PAGE).status_code == 302
    user_with(CHANGE)
    assert client.get(PAGE).status_code == 403
    user_with(VIEW)
    assert client.get(PAGE).status_code == 200
    assert "Delayed tasks" in client.get("/admin/").content.decode()
    assert reverse("admin:hardening_delayedtask_changelist") == PAGE


def test_there_are_no_pages_of_rows(client, project, django_user_model) -> None:
    project({})
    client.force_login(django_user_model.objects.create_superuser("root", password="x"))
    delay(delayed_store_of(project({})), "one")
    number = DelayedTask.objects.get().pk

    for address in ("add/", f"{number}/", f"{number}/change/", f"{number}/delete/", f"{number}/history/"):
        assert client.get(PAGE + address).status_code == 404


def test_it_shows_what_waits_and_no_argument(client, user_with, project) -> None:
    store = delayed_store_of(project())
    delay(store, "task-1", seconds=7200, attempt=3, message="secret-argument")
    user_with(VIEW)

    text = page(client)

    for shown in ("task-1", "shop.charge", "payments", ">3<", "in 2 h", "1 task waits"):
        assert shown in text
    assert "secret-argument" not in text
    assert 'type="checkbox"' not in text
    assert "Cancel the ticked tasks" not in text


def test_texts_of_producers_are_escaped(client, user_with, project) -> None:
    hostile = '"><script>alert(1)</script>'
    store = delayed_store_of(project())
    delay(store, hostile, task=hostile, queue=hostile)
    user_with(VIEW, CHANGE)

    assert "<script>alert" not in page(client)
    assert "<script>alert" not in page(client, q=hostile)
    client.post(CANCEL, {"id": store.page(offset=0, limit=1)[0].id})
    assert "<script>alert" not in page(client)


def test_cancelling_needs_a_post_and_the_change_permission(client, user_with, project) -> None:
    store = delayed_store_of(project())
    one = delay(store, "one")

    for permissions, method, status in (
        ((VIEW,), "post", 403),
        ((CHANGE,), "post", 403),
        ((VIEW, CHANGE), "get", 405),
    ):
        user_with(*permissions)
        assert getattr(client, method)(CANCEL, {"id": one.id}).status_code == status
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(user_with(VIEW, CHANGE))
    assert strict.post(CANCEL, {"id": one.id}).status_code == 403
    assert client.post(PAGE).status_code == 405

    assert store.fate(one.id) is Fate.PARKED


def test_what_was_ticked_is_cancelled_logged_and_told(client, user_with, project) -> None:
    app = project()
    store = delayed_store_of(app)
    one, two = delay(store, "one"), delay(store, "two")
    user = user_with(VIEW, CHANGE)

    response = client.post(CANCEL, {"id": [one.id, "0" * 32]}, follow=True)

    text = response.content.decode()
    assert response.redirect_chain == [(PAGE, 302)]
    assert "1 task was cancelled." in text
    assert "1 task was not there any more" in text
    assert (store.fate(one.id), store.fate(two.id)) == (Fate.CANCELLED, Fate.PARKED)
    assert app.AsyncResult("one").state == "REVOKED"
    [record] = store.cancellations(limit=5)
    assert record.by == user.get_username()
    assert user.get_username() in text
    entry = LogEntry.objects.get()
    assert (entry.user_id, entry.object_id, entry.get_change_message()) == (user.pk, one.id, "Cancelled.")


def test_nothing_ticked_changes_nothing(client, user_with, project) -> None:
    store = delayed_store_of(project())
    delay(store, "one")
    user_with(VIEW, CHANGE)

    assert "Nothing was chosen" in client.post(CANCEL, follow=True).content.decode()

    assert store.count() == 1


def test_a_result_backend_that_is_down_is_said(client, user_with, project) -> None:
    app = project()
    app.backend.down = True
    store = delayed_store_of(app)
    one = delay(store, "one")
    user_with(VIEW, CHANGE)

    text = client.post(CANCEL, {"id": one.id}, follow=True).content.decode()

    assert "1 task was cancelled." in text
    assert "results stay pending" in text


def test_a_task_id_finds_its_tasks(client, user_with, project) -> None:
    store = delayed_store_of(project())
    for task_id in ("one", "two"):
        delay(store, task_id)
    user_with(VIEW)

    text = page(client, q=" two ")

    assert ">two<" in text
    assert ">one<" not in text
    assert "None with this task id." in page(client, q="three")


def test_the_store_is_told_when_it_does_not_answer(client, user_with, project) -> None:
    project(BROKEN)
    user_with(VIEW, CHANGE)

    assert "does not answer" in page(client)
    assert "did not confirm" in client.post(CANCEL, {"id": "x"}, follow=True).content.decode()


@pytest.mark.parametrize("number", ["0", "-1", "x", "999999999999", "\u0665", ""])
def test_any_page_number_shows_a_page(client, user_with, project, number) -> None:
    delay(delayed_store_of(project()), "one")
    user_with(VIEW)

    assert ">one<" in page(client, p=number)


def test_100_000_are_paged_through_fast(client, user_with, project) -> None:
    store = delayed_store_of(project({}))
    now = time.time()
    delay(store, "like this")
    row = DelayedTask.objects.values().get()
    DelayedTask.objects.all().delete()
    DelayedTask.objects.bulk_create(
        [
            DelayedTask(
                **{**row, "number": n + 1, "key": f"{n:032d}", "task_id": f"t{n:06d}", "message": "{}"}
                | {"due_at": now + 3600 + n, "next_at": now + 3600 + n}
            )
            for n in range(100_000)
        ],
        batch_size=5_000,
    )
    user_with(VIEW)
    text = ""

    for number, first in ((1, 0), (2, PER_PAGE), (1000, 100_000 - PER_PAGE)):
        begun = time.monotonic()
        text = page(client, p=number)
        assert time.monotonic() - begun < 1.5
        assert f">t{first:06d}<" in text
        assert f">t{first + PER_PAGE:06d}<" not in text
    assert "page 1000 of 1000" in text
