"""Twins: two copies of one message at work. Who may start, what is refused, and what is counted.

A twin arises where a message is given to another while its first holder lives: a lease that was not renewed
in time, a channel of RabbitMQ that died. Only messages that may have a twin pay for this.
"""
