"""Where the shop runs: Python, place, host and release. No two are alike, as in real fleets."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEPLOYMENTS", "REQUIREMENTS", "Deployment"]

_COMMON = (
    "psycopg[binary]",
    "requests",
    "httpx",
    "pydantic",
    "jinja2",
    "python-dateutil",
)
REQUIREMENTS = {
    "3.11": ("celery==5.6.0", "kombu[redis]==5.7.0", "Django==5.2.*", *_COMMON),
    "3.12": ("celery==5.7.0", "kombu[redis]==5.7.0", "Django==5.2.*", *_COMMON),
    "3.13": ("celery==5.7.0", "kombu[redis]==5.7.0", "Django==6.0.*", *_COMMON),
}


@dataclass(frozen=True)
class Deployment:
    """`root`, `packages` and `stdlib` are what the corpus names; the real directories are temporary."""

    name: str
    python: str
    root: str
    packages: str
    stdlib: str
    worker: str
    release: str

    @property
    def host(self) -> str:
        return self.worker.partition("@")[2]


def _venv(python: str, root: str) -> tuple[str, str]:
    return f"{root}/lib/python{python}/site-packages", f"/usr/lib/python{python}"


def _image(python: str) -> tuple[str, str]:
    return f"/usr/local/lib/python{python}/site-packages", f"/usr/local/lib/python{python}"


DEPLOYMENTS = (
    Deployment(
        "d01",
        "3.11",
        "/srv/shop/releases/20260101",
        *_venv("3.11", "/srv/shop/venv"),
        "w1@jobs-1.shop.internal",
        "2026.1",
    ),
    Deployment(
        "d02",
        "3.11",
        "/home/deploy/releases/20260203/src",
        *_venv("3.11", "/home/deploy/venvs/shop"),
        "celery@ip-10-4-17-201.eu.internal",
        "2026.2",
    ),
    Deployment("d03", "3.11", "/app", *_image("3.11"), "celery@shop-worker-7d9f8b6c5-x2k4q", "v341"),
    Deployment(
        "d04",
        "3.11",
        "/var/www/shop.example/current",
        *_venv("3.11", "/var/www/shop.example/.venv"),
        "bulk@web2.shop.example",
        "9f31c2e",
    ),
    Deployment(
        "d05",
        "3.12",
        "/srv/shop/releases/20260301",
        *_venv("3.12", "/srv/shop/venv"),
        "w2@jobs-2.shop.internal",
        "2026.3",
    ),
    Deployment("d06", "3.12", "/app", *_image("3.12"), "celery@shop-worker-64cd9bb7f9-8pzlm", "v352"),
    Deployment(
        "d07",
        "3.12",
        "/opt/shop/lib/python3.12/site-packages",
        *_venv("3.12", "/opt/shop"),
        "celery@node-17.shop.example",
        "4.11.0",
    ),
    Deployment("d08", "3.12", "/usr/src/app/backend", *_image("3.12"), "mail@3f9a0c11d2e7", "c0ffee1"),
    Deployment(
        "d09",
        "3.13",
        "/srv/shop/releases/20260405",
        *_venv("3.13", "/srv/shop/venv"),
        "w3@jobs-3.shop.internal",
        "2026.4",
    ),
    Deployment("d10", "3.13", "/app", *_image("3.13"), "celery@shop-worker-5b7c6d8f44-qq9st", "v360"),
    Deployment(
        "d11",
        "3.13",
        "/home/ada/projects/shop",
        *_venv("3.13", "/home/ada/projects/shop/.venv"),
        "celery@ada-laptop.local",
        "dev",
    ),
    Deployment(
        "d12",
        "3.13",
        "/opt/apps/shop/20260409T101500Z",
        *_venv("3.13", "/opt/apps/venv-3.13"),
        "priority@b4.shop.example",
        "5.0.0rc1",
    ),
)
