"""The stores of shared state that come with hardening: memory, Redis, and any database of Django's."""
