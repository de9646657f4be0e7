"""What tests of hardening need at every level."""

from tests.helpers.hardening_fixtures import isolated, recording

__all__ = ["isolated", "recording"]
