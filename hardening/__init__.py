"""celery-hardening: a task that the broker accepted is done, kept as a dead letter, or still pending."""

from .core.errors import HardeningError, Permanent, RetryLater, Transient
from .plugin import harden
from .retries.policy import RetryPolicy

__version__ = "0.1.0.dev0"

__all__ = ["HardeningError", "Permanent", "RetryLater", "RetryPolicy", "Transient", "__version__", "harden"]
