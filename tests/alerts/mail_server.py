"""A real mail server in this process that can refuse, hang, ask for a password, speak TLS, or be down."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

import trustme
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from tests.eventually import LIMIT_SECONDS

USER, PASSWORD = "penstock", "s3cret/@:"


class _OnSocket(Controller):
    """A server on a socket that has its port already."""

    def __init__(self, handler: MailServer, listener: socket.socket, **options: Any) -> None:
        host, port = listener.getsockname()
        super().__init__(handler, hostname=host, port=port, ready_timeout=LIMIT_SECONDS, **options)
        self._listener = listener

    def _create_server(self) -> Awaitable[asyncio.AbstractServer]:
        return self.loop.create_server(self._factory_invoker, sock=self._listener, ssl=self.ssl_context)


class MailServer:
    """Keeps every mail it takes. `to_recipient` and `to_mail` may give another answer to a recipient or a mail.

    It has its port from the beginning. Until it is started, connections are refused.
    """

    def __init__(
        self, *, certificate: trustme.LeafCert | None = None, has_tls_at_once: bool = False, needs_login: bool = False
    ) -> None:
        self.mails: list[EmailMessage] = []
        self.envelopes: list[Envelope] = []
        self.was_encrypted: list[bool] = []
        self.to_recipient: Callable[[str], str | None] = lambda _: None
        self.to_mail: Callable[[], str | None] = lambda: None
        self.to_quit: str | None = None
        self.may_answer = threading.Event()
        """While it is not set, no mail gets an answer."""
        self.may_answer.set()
        self.is_asked = threading.Event()
        """Set once a mail has come."""
        self.sessions = 0
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        context = None
        if certificate is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            certificate.configure_cert(context)
        self._options: dict[str, Any] = {}
        if has_tls_at_once:
            self._options["ssl_context"] = context
        elif context is not None:
            self._options |= {"tls_context": context, "require_starttls": True}
        if needs_login:
            has_starttls = context is not None and not has_tls_at_once
            self._options |= {"authenticator": _authenticated, "auth_required": True, "auth_require_tls": has_starttls}
        self._controller: Controller | None = None

    def start(self) -> MailServer:
        self._controller = _OnSocket(self, self._listener, **self._options)
        self._controller.start()
        return self

    def stop(self) -> None:
        self.may_answer.set()
        if self._controller is not None:
            self._controller.stop()
            self._controller = None

    def __enter__(self) -> MailServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"smtp://127.0.0.1:{self.port}"

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        answer = self.to_recipient(address)
        if answer is not None:
            return answer
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_QUIT(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        return self.to_quit or "221 bye"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        self.sessions += 1
        self.is_asked.set()
        await asyncio.to_thread(self.may_answer.wait)
        answer = self.to_mail()
        if answer is not None:
            return answer
        content = envelope.content
        assert isinstance(content, bytes)
        parsed = message_from_bytes(content, policy=policy.default)
        assert isinstance(parsed, EmailMessage)
        self.mails.append(parsed)
        self.envelopes.append(envelope)
        self.was_encrypted.append(session.ssl is not None)
        return "250 taken"


def _authenticated(server: SMTP, session: Session, envelope: Envelope, mechanism: str, given: Any) -> AuthResult:
    is_right = isinstance(given, LoginPassword) and (given.login, given.password) == (USER.encode(), PASSWORD.encode())
    return AuthResult(success=is_right, handled=False)
