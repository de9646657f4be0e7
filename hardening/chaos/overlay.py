"""What a run changes of a project's settings. Pure: mappings in, mappings out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["LEASE_SECONDS", "TUNED", "caches", "databases", "hardening_settings"]

LEASE_SECONDS = 6.0
"""Renewed thrice in that time."""

TUNED: Mapping[str, Mapping[str, Any]] = {
    "RETRY": {"BASE": "0.3 s", "FLOOR": "0.1 s", "CAP": "2 s"},
    "DELAYED": {"HORIZON": "2 s"},
    "SHUTDOWN": {"GRACE": "2 s"},
    "POISON": {"BASE": "0.5 s", "CAP": "3 s"},
    "INTAKE": {"MOST_BYTES": 262_144},
}
"""Shorter times than the defaults, so that thousands of tasks under hundreds of kills take minutes."""

_STORES = ("STORE", "DEAD_LETTER_SINK")
_POSTGRES = "django.db.backends.postgresql"
_SQLITE = "django.db.backends.sqlite3"


def databases(own: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Each alias of the project's, on the kit's server. `given`: {"postgres": port}, or {"sqlite": directory}
    and perhaps "timeout", in seconds."""
    return {alias: _database(alias, given) for alias in (*own, "default")}


def _database(alias: str, given: Mapping[str, Any]) -> dict[str, Any]:
    if "postgres" in given:
        return {
            "ENGINE": _POSTGRES,
            "NAME": f"chaos_{alias}",
            "USER": "postgres",
            "HOST": "127.0.0.1",
            "PORT": str(given["postgres"]),
        }
    return {
        "ENGINE": _SQLITE,
        "NAME": f"{given['sqlite']}/{alias}.sqlite3",
        "OPTIONS": {"timeout": given.get("timeout", 20)},
    }


def caches(own: Mapping[str, Any], url: str) -> dict[str, Any]:
    """Each cache of the project's, in the kit's result store."""
    return {
        alias: {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": url,
            "KEY_PREFIX": f"cache-{alias}-{(own.get(alias) or {}).get('KEY_PREFIX', '')}",
        }
        for alias in (*own, "default")
    }


def hardening_settings(
    own: Mapping[str, Any], *, as_configured: bool, report: bool, lease_seconds: float = LEASE_SECONDS
) -> dict[str, Any]:
    """The project's, without stores of its own and with short times. `report`: it changes nothing."""
    settings = {name: value for name, value in own.items() if name not in _STORES}
    if isinstance(settings.get("DELAYED"), Mapping):
        settings["DELAYED"] = {k: v for k, v in settings["DELAYED"].items() if k != "STORE"}
    if not as_configured:
        known = _known()
        for name, values in TUNED.items():
            if name in known:
                settings[name] = {**(settings.get(name) or {}), **values}
        lease = {"SECONDS": lease_seconds, "RENEW_EVERY": lease_seconds / 3}
        settings["LEASE"] = {**(settings.get("LEASE") or {}), **lease}
    if report:
        settings["MODE"] = "report"
    return settings


def _known() -> set[str]:
    from dataclasses import fields

    from hardening.conf import HardeningSettings

    return {field.name.upper() for field in fields(HardeningSettings)}
