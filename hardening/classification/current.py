"""The classifier of this process: the project's rules, then the built-in ones."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from django.core.signals import setting_changed

from hardening.conf import HardeningSettings, load_settings

from .builtin import BUILTIN
from .classifier import Classifier, RuleBook
from .project import project_rules

__all__ = ["classifier_for", "project_classifier"]

_builtin = RuleBook(BUILTIN)


def classifier_for(settings: HardeningSettings) -> Classifier:
    """A classifier by these settings' CLASSIFY, then the built-in rules. Django's apps must be loaded.

    What is wrong with an entry is left to the checks and the gate; the others are in force.
    """
    return Classifier((RuleBook(project_rules(settings.classify)[0]), _builtin))


@lru_cache(maxsize=1)
def project_classifier() -> Classifier:
    """The classifier of this process's settings, made once. Django's apps must be loaded."""
    return classifier_for(load_settings()[0])


def _forget(*, setting: str, **_kwargs: Any) -> None:
    if setting == "HARDENING":
        project_classifier.cache_clear()


setting_changed.connect(_forget, dispatch_uid="hardening.classification.current")
