"""celery-hardening: a task that the broker accepted is done, kept as a dead letter, or still pending."""

from .core.errors import HardeningError, Permanent
from .plugin import harden

__version__ = "0.1.0.dev0"

__all__ = ["HardeningError", "Permanent", "__version__", "harden"]
