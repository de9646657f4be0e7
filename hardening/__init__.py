"""celery-hardening: every task the broker accepted ends as done, as a kept dead letter, or is still pending."""

from .core.errors import HardeningError, Permanent
from .plugin import harden

__version__ = "0.1.0.dev0"

__all__ = ["HardeningError", "Permanent", "__version__", "harden"]
