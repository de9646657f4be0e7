"""What a Celery app's settings are: which broker, what the project set itself, what is in force."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery import Celery
from celery.utils.collections import ConfigurationView

from .enforced import Enforced

__all__ = ["MISSING", "current_value", "project_values", "set_value", "transport_of", "write_value"]

MISSING: Any = type("Missing", (), {"__repr__": lambda self: "(not set)"})()

_TRANSPORTS = {
    "redis": "redis",
    "rediss": "redis",
    "valkey": "redis",
    "valkeys": "redis",
    "sentinel": "redis",
    "amqp": "amqp",
    "amqps": "amqp",
    "pyamqp": "amqp",
    "py-amqp": "amqp",
    "": "amqp",
}


def transport_of(app: Celery) -> str:
    """The kind of broker: "redis", "amqp", or Celery's own name for another."""
    url: Any = app.conf.broker_read_url or app.conf.broker_url or ""
    if isinstance(url, (list, tuple)):
        url = url[0] if url else ""
    scheme = str(url).split(";")[0].partition("://")[0] if "://" in str(url) else ""
    scheme = (scheme or str(app.conf.broker_transport or "")).lower().partition("+")[0]
    return _TRANSPORTS.get(scheme, scheme)


def project_values(app: Celery, rows: tuple[Enforced, ...]) -> dict[str, Any]:
    """What the project itself set for these rows; rows that it left alone are absent.

    Call it before anything is written: afterwards our own values look like the project's.
    """
    conf: Any = app.conf
    # The last map holds Celery's defaults. Prefix and old-style names are looked up as Celery does it.
    view: Any = ConfigurationView
    own = view({}, list(conf.maps[:-1]), keys=conf.__dict__.get("_keys"), prefix=conf.prefix)
    return {row.setting: value for row in rows if (value := _read(own, row.setting)) is not MISSING}


def current_value(app: Celery, setting: str) -> Any:
    """The value in force now, whoever set it."""
    return _read(app.conf, setting)


def write_value(app: Celery, row: Enforced) -> None:
    """Put a row's value in force."""
    name, _, key = row.setting.partition(".")
    conf: Any = app.conf
    set_value(app, name, {**(conf.get(name) or {}), key: row.value} if key else row.value)


def set_value(app: Celery, name: str, value: Any) -> None:
    """Put a setting in force, whatever the project wrote under its prefix."""
    conf: Any = app.conf
    conf[name] = value
    if conf.prefix and conf.get(name) != value:
        # Celery 5.6 prefers the project's prefixed name, wherever it stands, to the plain one.
        conf.maps[0][f"{conf.prefix}{name.upper() if conf.prefix.isupper() else name}"] = value


def _read(conf: Mapping[str, Any], setting: str) -> Any:
    name, _, key = setting.partition(".")
    value = conf.get(name, MISSING)
    if not key:
        return value
    return value.get(key, MISSING) if isinstance(value, Mapping) else MISSING
