"""The register in a database: signs of life, terms, refusals, and who asked a leader to resign."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from beat_leader.models.names import clean
from beat_leader.models.register import HOLDER_LENGTH, BeatSign, BeatTerm, Refusal
from beat_leader.register import Role, Sign, TermRecord
from hardening.core.statements import Statements

from .link import Stored

__all__ = ["Register"]

_SIGN_SECONDS = 86_400.0
_TERMS_KEPT = 1_000
_REFUSALS_KEPT = 100
_END_LENGTH = 64


class Register(Stored):
    """A register in the tables of `beat_leader.models`. Moments are the database's."""

    model = BeatTerm
    keeps = "the signs of life of Beat"

    def tell(self, sign: Sign) -> float:
        """Two statements; two more for a new Beat."""
        holder = _short(sign.holder, HOLDER_LENGTH)
        # JSON lets any text through in ASCII.
        told = json.dumps(asdict(sign))

        def work(sql: Statements) -> float:
            now = _now(sql)
            signs = _of(BeatSign, sql)
            if not signs.filter(pk=holder).update(at=now, told=told):
                signs.bulk_create([BeatSign(holder=holder, at=now, told=told)])
                signs.filter(at__lt=now - _SIGN_SECONDS).delete()
            return now

        return self._ask_as_beat(work)

    def signs(self) -> list[Sign]:
        """Two statements that only read."""

        def work(sql: Statements) -> list[Any]:
            since = _now(sql) - _SIGN_SECONDS
            return list(_of(BeatSign, sql).filter(at__gte=since).values_list("told", "at"))

        signs = [_sign(told, at) for told, at in self._ask(work)]
        return sorted(signs, key=lambda sign: (sign.role is not Role.LEADER, -sign.at))

    def leave(self, holder: str) -> None:
        """One statement."""
        pk = _short(holder, HOLDER_LENGTH)
        self._ask_as_beat(lambda sql: _of(BeatSign, sql).filter(pk=pk).delete())

    def term_began(self, epoch: int, holder: str) -> None:
        """Three statements, and another one if there are old ones."""

        def work(sql: Statements) -> None:
            terms = _of(BeatTerm, sql)
            term = BeatTerm(epoch=epoch, holder=_short(holder, HOLDER_LENGTH), began=_now(sql))
            terms.bulk_create([term], ignore_conflicts=True)
            for old in terms.order_by("-epoch").values_list("epoch", flat=True)[_TERMS_KEPT:][:1]:
                terms.filter(epoch__lte=old).delete()

        self._ask_as_beat(work)

    def term_sent(self, epoch: int) -> None:
        """Two statements."""

        def work(sql: Statements) -> None:
            _of(BeatTerm, sql).filter(epoch=epoch, first_sent=None).update(first_sent=_now(sql))

        self._ask_as_beat(work)

    def term_ended(self, epoch: int, end: str) -> None:
        """Two statements."""

        def work(sql: Statements) -> None:
            going_on = _of(BeatTerm, sql).filter(epoch=epoch, ended=None)
            going_on.update(ended=_now(sql), end=_short(end, _END_LENGTH))

        self._ask_as_beat(work)

    def terms(self, limit: int = 100) -> list[TermRecord]:
        """One statement that only reads."""
        columns = ("epoch", "holder", "began", "ended", "end", "first_sent")

        def work(sql: Statements) -> list[Any]:
            return list(_of(BeatTerm, sql).order_by("-epoch").values(*columns)[:limit])

        return [TermRecord(**row) for row in self._ask(work)]

    def refused(self, epoch: int, holder: str, what: str) -> None:
        """Three statements, and another one if there are old ones."""

        def work(sql: Statements) -> None:
            refusals = _of(Refusal, sql)
            told = {"epoch": epoch, "holder": _short(holder, HOLDER_LENGTH), "what": clean(what)}
            refusals.bulk_create([Refusal(at=_now(sql), **told)])
            for old in refusals.order_by("-id").values_list("id", flat=True)[_REFUSALS_KEPT:][:1]:
                refusals.filter(id__lte=old).delete()

        self._ask_as_beat(work)

    def refusals(self, *, since: float) -> list[tuple[float, int, str, str]]:
        """One statement that only reads."""

        def work(sql: Statements) -> list[tuple[float, int, str, str]]:
            rows = _of(Refusal, sql).filter(at__gte=since).order_by("-id")
            return list(rows.values_list("at", "epoch", "holder", "what")[:_REFUSALS_KEPT])

        return self._ask(work)

    def ask_to_resign(self, epoch: int, by: str) -> None:
        """One statement. Of a term that nobody knows, or that is over, nothing is kept."""
        asked = _short(by, HOLDER_LENGTH)
        self._ask(lambda sql: _of(BeatTerm, sql).filter(epoch=epoch, ended=None).update(asked_by=asked))

    def asked_to_resign(self, epoch: int) -> str | None:
        """One statement that only reads."""

        def work(sql: Statements) -> str | None:
            rows = _of(BeatTerm, sql).filter(epoch=epoch, ended=None).values_list("asked_by", flat=True)
            return rows.first() or None

        return self._ask_as_beat(work)

    def now(self) -> float:
        """One statement that only reads."""
        now: Callable[[Statements], float] = _now
        return self._ask(now)


def _now(sql: Statements) -> float:
    return float(sql.first("SELECT {clock}")[0])


def _sign(told: str, at: float) -> Sign:
    found = json.loads(told)
    return replace(Sign(**{**found, "role": Role(found["role"])}), at=at)


def _short(text: str, length: int) -> str:
    return clean(text)[:length]


def _of(model: Any, sql: Statements) -> Any:
    return model.objects.using(sql.connection.alias)
