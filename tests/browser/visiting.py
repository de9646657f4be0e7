"""What a visitor does on any page of the admin: come in, look, press."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal
from urllib.parse import urljoin
from uuid import uuid4

from axe_playwright_python.base import AXE_SCRIPT
from django.conf import settings
from django.contrib.auth.models import Permission, User
from django.test import Client
from playwright.sync_api import Locator, Page, ViewportSize, expect

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"

PASSWORD = "only for this test"
WIDTHS = {1400: "wide", 390: "narrow"}
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
_KEPT = (("light", "wide"), ("dark", "narrow"))
_HEIGHT = 1100
_WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# Django's own, the same everywhere in the admin: links that only their colour tells from the text around,
# and the search, whose label is a picture.
_AUDITED = {"exclude": [[".breadcrumbs"], ["#toolbar"]]}
# All else that axe knows is the same in each theme and width.
_OF_LOOKS = ("color-contrast", "link-in-text-block", "scrollable-region-focusable")
_STILL = "*, *::before, *::after { transition: none !important; animation: none !important; }"


def user_with(*codenames: str, **fields: Any) -> User:
    """Of the staff, with these permissions."""
    user = User.objects.create_user(f"user-{uuid4().hex[:8]}", password=PASSWORD, is_staff=True, **fields)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    return user


def log_in(page: Page, *codenames: str) -> User:
    """As somebody new with these permissions; nobody was here before."""
    user = user_with(*codenames)
    client = Client()
    client.force_login(user)
    name = settings.SESSION_COOKIE_NAME
    root = urljoin(page.context.request.get("/admin/login/").url, "/")
    page.context.add_cookies([{"name": name, "value": client.cookies[name].value, "url": root}])
    return user


def content(page: Page) -> Locator:
    """All but the frame that each page of the admin has."""
    return page.locator("#content")


def told(page: Page, text: str) -> None:
    """A message is shown that says this."""
    expect(page.locator(".messagelist")).to_contain_text(text)


def looks_right(page: Page, name: str, *, audit: bool = True) -> None:
    """In both themes and both widths: nothing is wider than the page, and axe finds nothing serious.

    A screenshot of each theme and of each width is kept. `audit`: not where scripts are off, for axe is one.
    """
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    before = page.viewport_size
    faults: dict[str, str] = {}
    rules: tuple[str, ...] = ()  # At first all.
    if audit:
        page.add_style_tag(content=_STILL)
        page.evaluate(AXE_SCRIPT)
    for theme in THEMES:
        page.emulate_media(color_scheme=theme)
        for width, called in WIDTHS.items():
            page.set_viewport_size(ViewportSize(width=width, height=_HEIGHT))
            if (theme, called) in _KEPT:
                page.screenshot(
                    path=SCREENSHOTS / f"{name}-{theme}-{called}.png", full_page=True, animations="disabled"
                )
            found = violations(page, *rules) if audit else []
            rules = _OF_LOOKS
            if (wider := page.evaluate(_WIDER)) > 0:
                found.append(f"wider than the page by {wider} pixels")
            faults |= dict.fromkeys(found, f"{name}, {theme}, {called}")
    assert not faults, "\n".join(f"{where}: {fault}" for fault, where in faults.items())
    page.emulate_media(color_scheme="light")
    if before is not None:
        page.set_viewport_size(before)


def violations(page: Page, *rules: str) -> list[str]:
    """What axe, which this page has loaded, calls serious or critical; `rules`: by these only."""
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = {"type": "rule", "values": list(rules)}
    found = page.evaluate("given => axe.run(...given).then(found => found.violations)", [_AUDITED, options])
    return [
        f"{each['id']} ({each['impact']}): {each['help']}: {node['html'][:200]} {_why(node)}"
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


def _why(node: dict[str, Any]) -> str:
    return "; ".join(check["message"] for check in (*node["any"], *node["all"], *node["none"]))


def forged(page: Page, address: str, **fields: str) -> int:
    """The status of the answer to a POST that no form of this page offers, with a token that is right."""
    token = next(cookie["value"] for cookie in page.context.cookies() if cookie["name"] == "csrftoken")
    answer = page.context.request.post(
        address,
        form={**fields, "csrfmiddlewaretoken": token},
        max_redirects=0,
    )
    return answer.status
