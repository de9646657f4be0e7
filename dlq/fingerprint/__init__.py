"""Names the cause of a failure, the same for each letter that it left. Pure, and never raises."""

from __future__ import annotations

from .fingerprint import VERSION, Fingerprint, fingerprint_of

__all__ = ["VERSION", "Fingerprint", "fingerprint_of"]
