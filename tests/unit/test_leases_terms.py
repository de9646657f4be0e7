"""HARDENING["LEASE"]: impossible timings are refused, and the defaults are safe."""

from __future__ import annotations

import pytest

from hardening.leases.terms import Lease, lease_of


def test_the_default_lease_holds_three_renewals() -> None:
    lease, findings = lease_of({})

    assert findings == []
    assert (lease.seconds, lease.renew_every, lease.wedged_after) == (12, 4, 1800)
    assert lease.atomic_take


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        ({"SECONDS": "10 s"}, "a lease must hold 3 renewals"),
        ({"RENEW_EVERY": "5 s"}, "a lease must hold 3 renewals"),
        ({"WEDGED_AFTER": "11 s"}, "WEDGED_AFTER is 11 s, less than the lease"),
        ({"SECONDS": 0}, "too short"),
        ({"RENEW": "1 s"}, "unknown key"),
        ({"ATOMIC_TAKE": 1}, "neither True nor False"),
    ],
)
def test_what_cannot_work_is_a_finding_and_the_default_holds(raw, what) -> None:
    lease, findings = lease_of(raw)

    assert lease == Lease()
    assert [finding.code for finding in findings] == ["CH017"]
    assert what in findings[0].what
    assert findings[0].where.startswith('settings.HARDENING["LEASE"]')
