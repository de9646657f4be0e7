"""The claims of hardening.testing."""
