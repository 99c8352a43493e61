"""A mail server for the demo: it takes every mail for itself, and tells of each."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage
from types import TracebackType
from typing import TYPE_CHECKING, Self

from aiosmtpd.controller import Controller

if TYPE_CHECKING:
    from aiosmtpd.smtp import SMTP, Envelope, Session


@dataclass(frozen=True)
class Mail:
    """A mail that came."""

    to: str
    subject: str
    text: str
    attachments: tuple[str, ...]
    """Their names."""


class Mailbox:
    """A real SMTP server on a free port of this machine. `on_mail` is called in its thread."""

    def __init__(self, on_mail: Callable[[Mail], None]) -> None:
        self._on_mail = on_mail
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]  # The controller calls itself to see that it is up, so it must know its port.
        self._server = Controller(self, hostname="127.0.0.1", port=port)
        self.url = f"smtp://127.0.0.1:{port}"
        """What the setting `alerts.smtp` takes."""

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop()

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: ARG002, N802
        """Called by the server for each mail."""
        assert isinstance(envelope.content, bytes), type(envelope.content)
        self._on_mail(_read(envelope.content, envelope.rcpt_tos))
        return "250 it is in the box"


def _read(content: bytes, receivers: list[str]) -> Mail:
    message = message_from_bytes(content, policy=policy.default)
    assert isinstance(message, EmailMessage), type(message)
    body = message.get_body(("plain",))
    text = "" if body is None else "\n".join(str(body.get_content()).splitlines())
    names = tuple(name for part in message.walk() if (name := part.get_filename()))
    return Mail(", ".join(receivers), str(message["Subject"]).strip(), text, names)
