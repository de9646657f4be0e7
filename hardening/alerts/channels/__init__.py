"""The channels that come with hardening."""
