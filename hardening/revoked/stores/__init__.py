"""Where revokes are remembered: memory, Redis, and any database of Django's."""
