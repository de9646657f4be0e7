"""The reference page of built-in rules: what each of them says, asked of the rules themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType

from hardening.classification import database_codes, system_codes
from hardening.classification.builtin import (
    aws,
    broker,
    celery,
    django,
    grpc,
    http,
    pydantic,
    python,
    redis,
    smtp,
    stripe,
)
from hardening.classification.codes import http_verdict, tls_verdict
from hardening.classification.rule import Rule
from hardening.classification.verdict import Kind

__all__ = ["LIBRARIES", "page"]

LIBRARIES: tuple[tuple[str, ModuleType], ...] = (
    ("Python", python),
    ("Celery", celery),
    ("Django and database drivers", django),
    ("HTTP clients and TLS", http),
    ("SMTP", smtp),
    ("Redis", redis),
    ("Brokers: kombu and amqp", broker),
    ("AWS: botocore and boto3", aws),
    ("gRPC", grpc),
    ("Stripe", stripe),
    ("pydantic", pydantic),
)

Decide = Callable[[str], Kind | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Codes:
    """Codes of one kind, and the function that the rules ask of them."""

    title: str
    decide: Decide
    codes: Sequence[str]
    note: str = ""

    @property
    def link(self) -> str:
        """Where its own section is on this page."""
        return f"[{self.title}](#{self.title.lower().replace(' ', '-')})"


# Codes that several rules ask about, each in a section of its own.
_HTTP = _Codes(
    title="HTTP status",
    decide=http_verdict,
    codes=[str(code) for code in range(400, 600)],
    note="A `Retry-After` header is obeyed; a 4xx that carries one is transient.",
)
_ERRNO = _Codes(
    title="errno",
    decide=system_codes.decide_errno,
    codes=sorted(system_codes._TRANSIENT | system_codes._PERMANENT),
)
_SQLSTATE = _Codes(
    title="SQLSTATE",
    decide=database_codes.decide_sqlstate,
    codes=sorted([f"{each}..." for each in database_codes._SQLSTATE_CLASSES] + [*database_codes._SQLSTATES]),
    note="PostgreSQL. A whole code goes before its class, which is its first two characters.",
)
_MYSQL = _Codes(
    title="MySQL and MariaDB",
    decide=database_codes.decide_mysql,
    codes=sorted(
        map(
            str,
            database_codes._MYSQL_TRANSIENT | database_codes._MYSQL_PERMANENT | database_codes._MYSQL_UNKNOWN,
        )
    ),
)
_SQLITE = _Codes(
    title="SQLite",
    decide=database_codes.decide_sqlite,
    codes=sorted(database_codes._SQLITE),
    note="An extended code counts as the primary code that it begins with.",
)
_TLS = _Codes(
    title="TLS alert",
    decide=tls_verdict,
    # A sample of OpenSSL's names: the rule looks for words in them.
    codes=["CERTIFICATE_VERIFY_FAILED", "TLSV1_ALERT_UNKNOWN_CA", "WRONG_VERSION_NUMBER"],
    note="A sample: every name with `CERTIFICATE` or `UNKNOWN_CA` in it is permanent.",
)
SHARED = (_HTTP, _ERRNO, _SQLSTATE, _MYSQL, _SQLITE, _TLS)

_SHARED_BY: dict[Decide, tuple[_Codes, ...]] = {
    http_verdict: (_HTTP,),
    system_codes.decide_errno: (_ERRNO,),
    database_codes.decide_database: (_SQLSTATE, _MYSQL, _SQLITE),
    tls_verdict: (_TLS,),
}
# What the other rules know, by the rule's name; asked of the rule itself.
_OWN: dict[str, tuple[Sequence[str], str]] = {
    "http.retries": ([http._REDIRECTS], f"else {_HTTP.link}"),
    "http.urlopen": ([http._URL], f"else {_ERRNO.link}"),
    "smtp.reply": ([str(code) for code in range(400, 600)], ""),
    "smtp.recipients": ([str(code) for code in range(400, 600)], ""),
    "redis.reply": (sorted(redis.NOT_NOW | redis.NEVER), ""),
    "broker.reply": (sorted(broker.NOT_NOW | broker.NEVER), ""),
    "broker.connection": (sorted(broker.NOT_NOW | broker.NEVER), ""),
    "aws.code": (sorted(aws.NOT_NOW | aws.EITHER), ""),
    "grpc.status": (sorted(grpc.NOT_NOW | grpc.NEVER), ""),
    "stripe.busy": (sorted(stripe.NOT_NOW), ""),
}

_INTRODUCTION = """\
# Built-in rules

What celery-hardening says of an error that no rule of the project knows. `transient`: another try may
succeed. `permanent`: none can. `unknown`: it may be either, so it gets a few tries and then a letter with the
reason `unclassified`. To overrule one, see [classify errors](../how-to/classify-errors.md).

The rule about the nearest class of the error's MRO decides; rules about the same class are asked from top to
bottom. Where a rule has codes, the code of the error decides. Where the code says nothing, the verdict beside
it holds; where that is none, the next rule is asked. "For some": the rule looks closer, as it says itself.
No library is imported for any of this: classes are known by their names.
"""


def page(head: str) -> str:
    """The whole page, in Markdown, below the line `head`."""
    parts = [head, _INTRODUCTION]
    for title, module in LIBRARIES:
        parts += [f"## {title}", "", _table(module.RULES), ""]
    parts += [
        "## Codes",
        "",
        "What the rules above read from an error, where several of them read the same.",
        "",
    ]
    for shared in SHARED:
        parts += [f"### {shared.title}", "", *([shared.note, ""] if shared.note else []), _codes(shared), ""]
    return "\n".join(parts)


def _table(rules: Iterable[Rule]) -> str:
    lines = ["| rule | errors | verdict | codes | why |", "|---|---|---|---|---|"]
    for rule in rules:
        cells = (f"`{rule.name}`", _classes(rule), _verdict(rule), _decided(rule), _cell(rule.why))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _classes(rule: Rule) -> str:
    """The names of the classes; those that several modules have alike only once."""
    names_of: dict[str, list[str]] = {}
    for name in rule.classes:
        module, _, short = name.rpartition(".")
        names_of.setdefault(module, []).append(short)
    modules_of: dict[tuple[str, ...], list[str]] = {}
    for module, names in names_of.items():
        modules_of.setdefault(tuple(names), []).append(module)
    separator = "; " if any(len(modules) > 1 for modules in modules_of.values()) else ", "
    parts = [
        ", ".join(f"`{modules[0]}.{name}`" if modules[0] else f"`{name}`" for name in names)
        if len(modules) == 1
        else f"{_listed(names)} of {_listed(modules)}"
        for names, modules in modules_of.items()
    ]
    return f"{separator.join(parts)}{', no subclass' if rule.exact else ''}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _verdict(rule: Rule) -> str:
    if rule.says is not None:
        return "see why"
    if rule.verdict is None:
        return "none"
    return f"{rule.verdict}, for some" if rule.when is not None else rule.verdict.value


def _decided(rule: Rule) -> str:
    """What the rule's codes say, in words; empty for a rule without codes."""
    if rule.decide is None:
        return ""
    shared = _SHARED_BY.get(rule.decide)
    if shared is not None:
        return ", ".join(each.link for each in shared)
    codes, more = _OWN[rule.name]
    decide: Decide = rule.decide
    return "; ".join([*_by_kind(decide, codes), *([more] if more else [])])


def _codes(shared: _Codes) -> str:
    lines = ["| verdict | codes |", "|---|---|"]
    for kind, codes in _grouped(shared.decide, shared.codes).items():
        lines.append(f"| {kind} | {codes} |")
    return "\n".join(lines)


def _by_kind(decide: Decide, codes: Sequence[str]) -> list[str]:
    return [f"{kind}: {listed}" for kind, listed in _grouped(decide, codes).items()]


def _grouped(decide: Decide, codes: Sequence[str]) -> dict[str, str]:
    """Verdict -> its codes, written short; transient first."""
    found: dict[str, list[str]] = {}
    for kind in (Kind.TRANSIENT, Kind.PERMANENT, Kind.UNKNOWN, None):
        of_kind = [code for code in codes if decide(code.removesuffix("...")) is kind]
        if of_kind:
            found["says nothing" if kind is None else kind.value] = of_kind
    return {kind: _listed(_ranges(listed, codes)) for kind, listed in found.items()}


def _ranges(listed: Sequence[str], among: Sequence[str]) -> list[str]:
    """Numbers that follow each other among all codes as ranges; every other code as it is."""
    numbers = set(listed)
    if not all(code.isdigit() for code in among) or len(among) < 100:
        return list(listed)
    ranges: list[str] = []
    for code in listed:
        if str(int(code) - 1) in numbers:
            continue
        last = int(code)
        while str(last + 1) in numbers:
            last += 1
        ranges.append(code if last == int(code) else f"{code}-{last}")
    return ranges


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
