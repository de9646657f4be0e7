"""Delayed tasks: a message that is due later than a horizon waits in a store and in no worker.

The argument. A worker parks the message, and acknowledges it when the store has it for good. Dying before
the store has it: the broker gives the message to another worker. Dying after that and before the
acknowledgement: the broker gives it to another worker as well, as redelivered; its id is made of what it
is, so that parking it again changes nothing, and where it was released or cancelled meanwhile, the store
remembers that for two hours (a cancellation for a week), and the old copy is acknowledged without a run.
What was released carries its id in a header, so that it is never taken for the old copy.

Any worker releases what is due, by the store's clock. On Redis one script moves messages from the store
into their lists: it is done or not done, and of two workers one finds nothing. From a database they are
claimed for a while, published with the broker's confirmation, and then marked as released. Dying between
the last two publishes a message again when the claim is over: at least once, as with every publish.
A broker that takes no message leaves it in the store, for another turn.

A store that does not answer parks nothing: the message goes Celery's way, and waits in the worker's memory.
"""
