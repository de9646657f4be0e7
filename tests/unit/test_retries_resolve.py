"""A task's policy is what its author wrote, ours or Celery's; what cannot be used is told and left out."""

from __future__ import annotations

import math

import pytest
from celery import Task

from hardening.conf import HardeningSettings, load_settings
from hardening.core.findings import Level
from hardening.retries.budget import Budget
from hardening.retries.outage import Outage
from hardening.retries.policy import RetryPolicy
from hardening.retries.resolve import autoretry, project_layer, task_layer
from tests.helpers.hardened_apps import make_app

pytestmark = pytest.mark.usefixtures("isolated")


class Stubborn(Task):
    abstract = True
    max_retries = 7


def task_with(conf=None, **options):
    app = make_app(**(conf or {}))

    @app.task(name="work", shared=False, **options)
    def work(): ...

    app.finalize()
    return app.tasks["work"]


def layer(**options):
    policy, findings = task_layer(task_with(**options))
    assert findings == []
    return policy


def constant(seconds, **limits):
    return RetryPolicy(base=seconds, cap=seconds, floor=seconds, jitter=False, **limits)


# Celery's options


def test_a_task_that_says_nothing_gives_nothing() -> None:
    """Celery's max_retries=3 and its delay of 3 minutes are nobody's wish."""
    assert layer() == RetryPolicy()


@pytest.mark.parametrize(
    ("retries", "attempts"), [(0, 1), (4, 5), (None, math.inf), (-1, 1), (math.inf, math.inf)]
)
def test_max_retries_counts_the_attempts_after_the_first(retries, attempts) -> None:
    assert layer(max_retries=retries) == RetryPolicy(max_attempts=attempts)


def test_an_option_of_the_projects_abstract_base_counts() -> None:
    assert layer(base=Stubborn) == RetryPolicy(max_attempts=8)
    assert layer(base=Stubborn, max_retries=1) == RetryPolicy(max_attempts=2)


@pytest.mark.parametrize(("backoff", "base"), [(True, 1), (30, 30), (0.5, 1), (False, None), (0, None)])
def test_retry_backoff_is_the_base(backoff, base) -> None:
    assert layer(retry_backoff=backoff) == RetryPolicy(base=base)


def test_the_rest_of_celerys_backoff_is_taken_where_it_is_written() -> None:
    policy = layer(retry_backoff=2, retry_backoff_max=90, retry_jitter=False)
    assert policy == RetryPolicy(base=2, cap=90, jitter=False)


def test_a_delay_of_the_authors_is_a_constant_one() -> None:
    assert layer(default_retry_delay=60) == constant(60)
    assert layer(retry_kwargs={"countdown": 5, "max_retries": 2}) == constant(5, max_attempts=3)
    assert layer(default_retry_delay=60, retry_kwargs={"countdown": 5}) == constant(5)


def test_backoff_goes_before_a_constant_delay() -> None:
    assert layer(default_retry_delay=60, retry_backoff=True) == RetryPolicy(base=1)


def test_the_limit_of_retry_kwargs_goes_before_the_tasks_and_none_there_means_the_default() -> None:
    assert layer(max_retries=9, retry_kwargs={"max_retries": 2}).max_attempts == 3
    assert layer(max_retries=9, retry_kwargs={"max_retries": None}).max_attempts == 10
    assert layer(retry_kwargs={"max_retries": None, "queue": "slow"}) == RetryPolicy()


def test_what_celery_alone_would_do_to_a_bound_parent_is_not_its_childs_wish() -> None:
    class Parent(Task):
        name = "parent"

    app = make_app()
    app.register_task(Parent())
    assert task_layer(type("Child", (Parent,), {"name": "child"}))[0] == RetryPolicy()


# Ours


def test_our_policy_is_read_from_the_task_in_both_forms() -> None:
    assert layer(retry_policy={"max_attempts": 5, "delays": "1 s, 2 s"}) == RetryPolicy(
        max_attempts=5, delays=(1, 2)
    )
    assert layer(retry_policy=RetryPolicy(base=3)) == RetryPolicy(base=3)


def test_our_policy_goes_before_celerys_options() -> None:
    policy = layer(retry_policy={"base": "9 s"}, retry_backoff=2, retry_backoff_max=90, max_retries=4)
    assert policy == RetryPolicy(base=9, cap=90, max_attempts=5)
    policy = layer(retry_policy={"delays": "1 s, 2 s"}, default_retry_delay=60, max_retries=4)
    assert (policy.delays, policy.base, policy.limit) == ((1, 2), None, 5)


def test_a_list_of_delays_limits_the_attempts_where_nothing_else_does() -> None:
    assert layer(retry_policy={"delays": "1 s, 2 s"}).limit == 3


# Annotations and instances


def test_annotations_count_as_written_and_go_before_the_class() -> None:
    annotated = {"retry_policy": {"base": 4}, "max_retries": 1}
    task = task_with({"task_annotations": {"work": annotated}}, max_retries=9)
    assert task_layer(task, annotated)[0] == RetryPolicy(base=4, max_attempts=2)


def test_a_value_set_on_the_instance_counts_as_written() -> None:
    task = task_with()
    task.max_retries = 1
    assert task_layer(task)[0] == RetryPolicy(max_attempts=2)
    assert task_layer(type(task))[0] == RetryPolicy()


# What cannot be used


def test_a_bad_policy_is_an_error_with_its_place_and_the_rest_of_it_is_used() -> None:
    task = task_with(retry_policy={"base": "soon", "max_attempts": 4}, max_retries=9)
    policy, (finding,) = task_layer(task)
    assert policy == RetryPolicy(max_attempts=4)
    assert (finding.code, finding.level) == ("CH014", Level.ERROR)
    assert "task work" in finding.what
    assert "retry_policy['base']: 'soon' is not a duration" in finding.what
    assert "test_retries_resolve.py" in finding.where


@pytest.mark.parametrize("own", [5, "3 times", [1], object()])
def test_a_policy_that_is_no_dict_is_an_error(own) -> None:
    policy, (finding,) = task_layer(task_with(retry_policy=own, max_retries=1))
    assert policy == RetryPolicy(max_attempts=2)
    assert finding.level is Level.ERROR


@pytest.mark.parametrize(
    "options",
    [
        {"max_retries": "3"},
        {"max_retries": True},
        {"max_retries": math.nan},
        {"default_retry_delay": -1},
        {"retry_backoff_max": -5},
        {"retry_kwargs": {"countdown": "soon"}},
    ],
)
def test_a_bad_option_of_celerys_is_a_warning_and_not_used(options) -> None:
    policy, (finding,) = task_layer(task_with(**options))
    assert policy == RetryPolicy()
    assert (finding.code, finding.level) == ("CH014", Level.WARNING)
    assert next(iter(options)) in finding.what


# autoretry_for


def test_autoretry_classes_are_read_and_broad_ones_told() -> None:
    assert autoretry(task_with()) == ((), (), False)
    narrow = task_with(autoretry_for=(OSError,), dont_autoretry_for=[FileNotFoundError])
    assert autoretry(narrow) == ((OSError,), (FileNotFoundError,), False)
    assert autoretry(task_with(autoretry_for=(KeyError, Exception)))[2] is True
    assert autoretry(task_with(autoretry_for=(BaseException,)))[2] is True


# Settings


def test_the_projects_policy_is_read_from_the_settings(settings) -> None:
    settings.HARDENING = {
        "RETRY": {"BASE": "2 s", "MAX_AGE": "2 h"},
        "OUTAGE": {"FAILURES": 3, "FIRST_WAIT": "1 s", "LONGEST_WAIT": 8, "PROBE_LEASE": "9 s"},
        "RETRY_BUDGET": {"SHARE": 0.5, "PER_SECOND": 1},
    }
    conf, findings = load_settings()
    assert findings == []
    assert conf.retry_layer == RetryPolicy(base=2, max_age=7200)
    assert conf.outage_rules == Outage(failures=3, first_wait=1, longest_wait=8, probe_lease=9)
    assert conf.budget_rules == Budget(share=0.5, per_second=1)


def test_nothing_set_means_the_defaults() -> None:
    conf = HardeningSettings()
    assert conf.retry_layer == RetryPolicy()
    assert conf.outage_rules == Outage()
    assert conf.budget_rules == Budget()


def test_every_bad_setting_is_a_finding_and_the_good_ones_are_used(settings) -> None:
    settings.HARDENING = {
        "RETRY": {"BASE": "soon", "CAP": 60, "MAX_ATEMPTS": 3},
        "OUTAGE": {"FAILURES": 0, "PROBE_LEASE": 30},
        "RETRY_BUDGET": {"SHARE": 20, "PER_SECOND": 0},
    }
    conf, findings = load_settings()
    assert {finding.code for finding in findings} == {"CH014"}
    assert [finding.where for finding in findings] == [
        'settings.HARDENING["RETRY"]["BASE"]',
        'settings.HARDENING["RETRY"]["MAX_ATEMPTS"]',
        'settings.HARDENING["OUTAGE"]["FAILURES"]',
        'settings.HARDENING["RETRY_BUDGET"]["SHARE"]',
        'settings.HARDENING["RETRY_BUDGET"]["PER_SECOND"]',
    ]
    assert conf.retry_layer == RetryPolicy(cap=60)
    assert conf.outage_rules == Outage(probe_lease=30)
    assert conf.budget_rules == Budget()


def test_waits_that_exclude_each_other_are_a_finding(settings) -> None:
    settings.HARDENING = {"OUTAGE": {"FIRST_WAIT": "2 m"}}
    conf, (finding,) = load_settings()
    assert "longest_wait" in finding.what
    assert conf.outage_rules == Outage()


def test_a_project_layer_that_is_no_dict_is_a_finding() -> None:
    policy, (finding,) = project_layer([1])  # type: ignore[arg-type]
    assert policy == RetryPolicy()
    assert finding.where == 'settings.HARDENING["RETRY"]'
