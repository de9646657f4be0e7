"""What tests of hardening need at every level, and users of the admin."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from tests.helpers.hardening_fixtures import isolated, recording

__all__ = ["isolated", "recording", "user_with"]


@pytest.fixture
def user_with(client: Client) -> Callable[..., User]:
    """Makes a member of staff with these permissions only, and logs the client in as that user."""

    def make(*codenames: str) -> User:
        user = User.objects.create_user(f"user-{uuid4()}", password="x", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
        client.force_login(user)
        return user

    return make
