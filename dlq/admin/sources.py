"""How the letters of an operation were chosen, in the words that are kept with it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from dlq.models import DeadLetter

from .filters import age_lookups

__all__ = ["source_of_address"]

_OF_THE_LIST = frozenset({"p", "o", "all", "e", "_facets", "_popup"})
_GROUP = frozenset({"group", "group_id", "fingerprint"})


def source_of_address(parameters: Mapping[str, str], *, now: datetime) -> dict[str, Any]:
    """Of all letters that the filters in the address of the list allow.

    Ages become moments: "the last hour" was that of the question. What is no filter on columns, such as a
    search, is kept as it was and belongs to a selection: nothing can be said of what came later.
    """
    given = {name: value for name, value in parameters.items() if name not in _OF_THE_LIST}
    lookups: dict[str, str] = {}
    for name, value in given.items():
        column, _, lookup = name.partition("__")
        if name == "age":
            lookups |= {key: moment.isoformat() for key, moment in age_lookups(value, now).items()}
        elif column in _COLUMNS and lookup in ("", "exact"):
            lookups["fingerprint" if column in _GROUP else column] = value
        elif value:
            return {"kind": "selection", "address": given}
    if set(lookups) - {"state"} == {"fingerprint"}:
        return {"kind": "group", "fingerprint": lookups["fingerprint"]}
    return {"kind": "filter", "lookups": lookups}


_COLUMNS = frozenset(field.name for field in DeadLetter._meta.concrete_fields) | _GROUP
