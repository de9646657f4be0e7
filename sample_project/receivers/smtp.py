"""An SMTP server that takes receipts; the first part of the address says how it behaves.

ok-...@  busy-once-...@ (451, then 250)  busy-...@ (451)  unknown-...@ (550)
"""

from __future__ import annotations

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from hardening.testing.ports import free_port
from sample_project.receivers.mended import Mended, Visits

ACCEPTED = "250 OK"
BUSY = "451 4.3.0 Try again later"
UNKNOWN = "550 5.1.1 No such mailbox"


class SmtpReceiver:
    """The server, in a thread of this process; `port` is where it listens."""

    def __init__(self, mended: Mended) -> None:
        self.port = free_port()
        self._controller = Controller(
            _Mailboxes(mended), hostname="127.0.0.1", port=self.port, server_hostname="shop"
        )

    def start(self) -> None:
        self._controller.start()

    def stop(self) -> None:
        """End it, also when it was not started."""
        self._controller.stop(no_assert=True)


class _Mailboxes:
    def __init__(self, mended: Mended) -> None:
        self._mended = mended
        self._visits = Visits()

    async def handle_RCPT(  # noqa: N802 (aiosmtpd's name)
        self, server: SMTP, session: Session, envelope: Envelope, address: str, rcpt_options: list[str]
    ) -> str:
        answer = self._answer(address)
        if answer == ACCEPTED:
            envelope.rcpt_tos.append(address)
        return answer

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        return ACCEPTED

    def _answer(self, address: str) -> str:
        if self._mended:
            return ACCEPTED
        if address.startswith("busy-once-"):
            return BUSY if self._visits.is_first(address) else ACCEPTED
        if address.startswith("busy-"):
            return BUSY
        if address.startswith("unknown-"):
            return UNKNOWN
        return ACCEPTED
