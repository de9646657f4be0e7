"""The stores of delayed tasks: memory, the Redis that is the broker, and any database of Django's."""
