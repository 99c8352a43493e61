"""Mails over a mail server, with the standard library: TLS before anything is said, and checked certificates."""

from __future__ import annotations

import smtplib
import socket
import ssl
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from email.message import EmailMessage
from pathlib import Path
from urllib.parse import unquote, urlsplit

from penstock.durations import parse_duration
from penstock.errors import NotDelivered
from penstock.loopback import is_loopback
from penstock.settings import AlertsSettings

PORTS = {"smtp": 587, "smtps": 465}
SENDING_TIMEOUTS = 10
"""A server that answers each time, but just in time, is left after so many times the timeout."""


@dataclass(frozen=True)
class MailServer:
    """Where mails are handed in, and how."""

    host: str
    port: int
    has_tls_at_once: bool
    needs_tls: bool
    user: str | None
    password: str | None = field(repr=False)
    timeout_seconds: float
    ca: Path | None

    @classmethod
    def of(cls, settings: AlertsSettings) -> MailServer | None:
        """The one that the settings name; None if they name none."""
        if not settings.smtp:
            return None
        parts = urlsplit(settings.smtp)
        host = parts.hostname or "localhost"
        return cls(
            host,
            parts.port or PORTS[parts.scheme],
            parts.scheme == "smtps",
            parts.query != "tls=no" and (settings.ca_path is not None or not is_loopback(host)),
            None if parts.username is None else unquote(parts.username),
            None if parts.password is None else unquote(parts.password),
            parse_duration(settings.timeout).total_seconds(),
            settings.ca_path,
        )

    @property
    def shown(self) -> str:
        return f"{self.host}:{self.port}"

    def send(self, message: EmailMessage, sender: str, addresses: Sequence[str]) -> str | None:
        """Hands a mail in. Returns who was refused while others were not. NotDelivered says whether to try again."""
        receiver = f"mailto:{','.join(addresses)}"
        try:
            session = self._connected()
            watch = threading.Timer(SENDING_TIMEOUTS * self.timeout_seconds, _cut, [session])
            watch.daemon = True
            watch.start()
            try:
                self._log_in(session)
                refused = session.send_message(message, sender, list(addresses))
                # It is the server's by now: what becomes of the goodbye changes nothing about that.
                with suppress(smtplib.SMTPException, OSError):
                    session.quit()
            finally:
                watch.cancel()
                session.close()
        except smtplib.SMTPRecipientsRefused as error:
            codes = [code for code, _ in error.recipients.values()]
            reason = f"{self.shown} refuses: {_refusals(error.recipients)}"
            raise NotDelivered(receiver, reason, is_retryable=not all(code >= 500 for code in codes)) from error
        except smtplib.SMTPAuthenticationError as error:
            # What the server says is left out: some repeat what they were given.
            raise NotDelivered(
                receiver, f"{self.shown} does not know this user and password ({error.smtp_code})", is_retryable=True
            ) from error
        except smtplib.SMTPResponseException as error:
            reason = f"{self.shown} answers {error.smtp_code} {_words(error.smtp_error)}"
            raise NotDelivered(receiver, reason, is_retryable=not _is_final(error)) from error
        except (smtplib.SMTPException, OSError, UnicodeError) as error:
            raise NotDelivered(receiver, f"{self.shown}: {_reason(error)}", is_retryable=True) from error
        return f"refused: {_refusals(refused)}" if refused else None

    def _connected(self) -> smtplib.SMTP:
        if self.has_tls_at_once:
            return smtplib.SMTP_SSL(self.host, self.port, timeout=self.timeout_seconds, context=self._context())
        return smtplib.SMTP(self.host, self.port, timeout=self.timeout_seconds)

    def _log_in(self, session: smtplib.SMTP) -> None:
        """Makes a session encrypted and logged in, as far as it has to be."""
        session.ehlo()
        if self.needs_tls and not self.has_tls_at_once:
            session.starttls(context=self._context())
            session.ehlo()
        if self.user is None:
            return
        try:
            session.login(self.user, self.password or "")
        except UnicodeError:
            # Without the text, and without the error that repeats it.
            raise smtplib.SMTPException("the user or the password in alerts.smtp is not plain ASCII") from None

    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=None if self.ca is None else str(self.ca))


def default_sender(settings: AlertsSettings) -> str:
    """From whom mails come."""
    return settings.sender or f"penstock@{socket.getfqdn() or 'localhost'}"


def _cut(session: smtplib.SMTP) -> None:
    """Ends a session from another thread: whoever waits for an answer learns that there will be none."""
    with suppress(OSError, AttributeError):
        session.sock.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]


def _is_final(error: smtplib.SMTPResponseException) -> bool:
    """Whether the server will not take this mail later either. A greeting that refuses is about us, not the mail."""
    return error.smtp_code >= 500 and not isinstance(error, smtplib.SMTPConnectError | smtplib.SMTPHeloError)


def _refusals(refused: dict[str, tuple[int, bytes]]) -> str:
    return "; ".join(f"{address} {code} {_words(text)}" for address, (code, text) in refused.items())


def _words(text: bytes | str) -> str:
    plain = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return " ".join("".join(each if each.isprintable() else " " for each in plain).split())[:200]


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError) or "timed out" in str(error):
        return "it does not answer in time"
    if isinstance(error, UnicodeError):
        return "a name in it is not plain ASCII"
    return _words(str(error)) or type(error).__name__
