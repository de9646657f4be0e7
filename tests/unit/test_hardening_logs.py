"""What is logged about a failing task shows no secrets, and the filter drops nothing and breaks nobody."""

from __future__ import annotations

import logging

import pytest

from hardening.core.redaction import MASK
from hardening.logs import RedactErrors, install
from tests.helpers.hardened_apps import hardened_app, process

pytestmark = pytest.mark.usefixtures("isolated", "recording")


class BrokenTraceback(Exception):
    @property
    def __cause__(self):  # type: ignore[override]
        raise RuntimeError("no cause")


class Collecting(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.addFilter(RedactErrors())

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


@pytest.fixture
def collected():
    handler = Collecting()
    root = logging.getLogger()
    root.addHandler(handler)
    yield handler.texts
    root.removeHandler(handler)


def test_celerys_report_of_a_failure_shows_no_secret(collected) -> None:
    app = hardened_app()

    @app.task(name="login", shared=False)
    def login(user, password):
        raise ValueError(f"{user} refused with {password}")

    process(login, "ann", "hunter22")

    text = "\n".join(collected)
    assert "raised unexpected" in text
    assert "ann refused with" in text
    assert "hunter22" not in text
    assert MASK in text


def test_a_traceback_that_the_task_logs_itself_shows_no_secret(collected) -> None:
    app = hardened_app()

    @app.task(name="login", shared=False)
    def login(password):
        try:
            raise ValueError(password)
        except ValueError:
            logging.getLogger("project").exception("refused")

    process(login, "hunter22")

    text = "\n".join(collected)
    assert "refused" in text
    assert "ValueError" in text
    assert "hunter22" not in text


def test_a_line_without_an_error_is_left_alone(collected) -> None:
    app = hardened_app()

    @app.task(name="speaks", shared=False)
    def speaks(password):
        logging.getLogger("project").warning("in passing: %s", password)

    process(speaks, "hunter22")

    assert "in passing: hunter22" in "\n".join(collected)


def test_outside_a_task_nothing_is_changed(collected) -> None:
    try:
        raise ValueError("password=hunter22")
    except ValueError:
        logging.getLogger("project").exception("outside")

    assert "password=hunter22" in "\n".join(collected)


def test_an_error_that_cannot_be_formatted_does_not_break_the_task_that_logs_it(collected) -> None:
    app = hardened_app()

    @app.task(name="logs", shared=False)
    def logs():
        try:
            raise BrokenTraceback
        except BrokenTraceback as exc:
            record = logging.LogRecord(
                "project", logging.ERROR, __file__, 1, "refused", (), (type(exc), exc, None)
            )
            assert RedactErrors().filter(record)
            return record.exc_text

    process(logs, task_id="l")

    assert app.backend.get_result("l") == "(this traceback cannot be formatted)"


def test_installing_twice_filters_once() -> None:
    logger = logging.getLogger("hardening.tests.of.logs")
    handler = logging.NullHandler()
    logger.addHandler(handler)
    before = {h: list(h.filters) for h in _handlers()}

    install()
    install()

    assert len([f for f in handler.filters if isinstance(f, RedactErrors)]) == 1
    for each, filters in before.items():
        each.filters[:] = filters
    logger.removeHandler(handler)


def _handlers() -> set[logging.Handler]:
    loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    return {handler for logger in loggers for handler in getattr(logger, "handlers", ())}
