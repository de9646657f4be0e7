"""Trends as drawings and in words. Pure: numbers in, SVG out; no script, no inline style."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext

from dlq.groups.figures import Trend

__all__ = ["Bar", "Chart", "day_chart", "day_in_words", "sparkline", "week_chart"]

_SPARK_HEIGHT, _SPARK_STEP, _SPARK_BAR = 20, 3, 2
_WIDTH, _HEIGHT, _GAP = 480, 96, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One span of time. `when` is its beginning, in words; the rest is where it is drawn."""

    when: str
    letters: int
    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """`text` says what is seen, for those who do not see it."""

    name: str
    title: str
    text: str
    bars: tuple[Bar, ...]
    total: int
    most: int
    width: int = _WIDTH
    height: int = _HEIGHT


def sparkline(trend: Trend) -> SafeString:
    """The last 24 hours, small: one path, so that a page of many stays light."""
    most = max(trend.day, default=0)
    path = "".join(
        f"M{index * _SPARK_STEP} {_SPARK_HEIGHT}h{_SPARK_BAR}v-{height}h-{_SPARK_BAR}z"
        for index, letters in enumerate(trend.day)
        if (height := _scaled(letters, most, _SPARK_HEIGHT))
    )
    width = len(trend.day) * _SPARK_STEP
    return format_html(
        '<svg class="dlq-spark" role="img" aria-label="{words}" width="{width}" height="{height}" '
        'viewBox="0 0 {width} {box}" focusable="false"><title>{words}</title>'
        '<path class="dlq-axis" d="M0 {line}h{width}" fill="none" stroke="currentColor" '
        'stroke-opacity="0.3"/><path class="dlq-bar" d="{path}" fill="currentColor"/></svg>',
        words=day_in_words(trend),
        width=width,
        height=_SPARK_HEIGHT + 2,
        box=_SPARK_HEIGHT + 1,
        line=f"{_SPARK_HEIGHT}.5",
        path=path,
    )


def day_in_words(trend: Trend) -> str:
    """What the drawing of the last 24 hours shows."""
    total = trend.last_24_hours
    if not total:
        return gettext("No letter in the last 24 hours.")
    most = max(trend.day)
    ago = len(trend.day) - 1 - _last_index(trend.day, most)
    when = (
        gettext("in the running hour")
        if not ago
        else ngettext("%(hours)d hour ago", "%(hours)d hours ago", ago) % {"hours": ago}
    )
    text = ngettext(
        "%(total)d letter in the last 24 hours; most in one hour: %(most)d, %(when)s.",
        "%(total)d letters in the last 24 hours; most in one hour: %(most)d, %(when)s.",
        total,
    )
    return text % {"total": total, "most": most, "when": when}


def day_chart(trend: Trend, *, now: datetime) -> Chart:
    """The last 24 hours, one bar for each."""
    first = now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=len(trend.day) - 1)
    starts = [first + timedelta(hours=index) for index in range(len(trend.day))]
    return _chart(
        "day",
        gettext("Last 24 hours, by hour"),
        day_in_words(trend),
        trend.day,
        [date_format(timezone.localtime(each), "H:i") for each in starts],
    )


def week_chart(trend: Trend, *, now: datetime) -> Chart:
    """The last seven times 24 hours, one bar for each."""
    last = now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    starts = [last - timedelta(days=days) for days in range(len(trend.week), 0, -1)]
    labels = [date_format(timezone.localtime(each), "m-d H:i") for each in starts]
    total = trend.last_7_days
    if not total:
        text = gettext("No letter in the last 7 days.")
    else:
        most = max(trend.week)
        text = ngettext(
            "%(total)d letter in the last 7 days; most in 24 hours: %(most)d, from %(when)s.",
            "%(total)d letters in the last 7 days; most in 24 hours: %(most)d, from %(when)s.",
            total,
        ) % {"total": total, "most": most, "when": labels[_last_index(trend.week, most)]}
    return _chart("week", gettext("Last 7 days, by 24 hours"), text, trend.week, labels)


def _chart(name: str, title: str, text: str, values: Sequence[int], labels: Sequence[str]) -> Chart:
    most = max(values, default=0)
    step = _WIDTH // max(1, len(values))
    bars = []
    for index, (letters, label) in enumerate(zip(values, labels, strict=True)):
        height = _scaled(letters, most, _HEIGHT)
        bars.append(
            Bar(
                when=label,
                letters=letters,
                x=index * step,
                y=_HEIGHT - height,
                width=step - _GAP,
                height=height,
            )
        )
    return Chart(name=name, title=title, text=text, bars=tuple(bars), total=sum(values), most=most)


def _scaled(value: int, most: int, height: int) -> int:
    """Something is seen of the smallest value, and nothing of none."""
    return max(1, round(value * height / most)) if value > 0 else 0


def _last_index(values: Sequence[int], value: int) -> int:
    return len(values) - 1 - list(reversed(values)).index(value)
