"""Sessions: how a browser shows that a token was given once. The token itself never comes back to the page.

The value of the cookie is signed with the hash of the token, which nobody but the service can read: it survives a
restart, ends when its time is over, and ends at once when its token is removed.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field

from penstock.clock import SECOND_US, Clock, now_us
from penstock.service.tokens import Token, Tokens

SECONDS = 12 * 3600
"""So long a session lasts."""


@dataclass(frozen=True)
class Session:
    """A browser that may look."""

    token: str
    """The name of its token."""
    number: str
    expires: int
    sha256: str = field(repr=False)
    """Of its token: one of the same name that is made later is another one."""


class Sessions:
    """The sessions of one service. Those that were ended before their time are remembered until then."""

    def __init__(self, tokens: Tokens, *, clock: Clock = now_us) -> None:
        self._tokens = tokens
        self._clock = clock
        self._ended: dict[str, int] = {}

    def begin(self, secret: str) -> str | None:
        """The value for a cookie, for the token with this secret; None if there is none, or if it may not read."""
        token = self._tokens.find(secret.strip())
        if token is None or not token.may("read"):
            return None
        number, expires = secrets.token_urlsafe(12), self._now() + SECONDS
        return f"{token.name}~{expires}~{number}~{_sign(token, number, expires)}"

    def find(self, value: str) -> Session | None:
        """The session with this value, if it still holds."""
        parts = value.split("~")
        if len(parts) != 4 or not parts[1].isascii() or not parts[1].isdigit() or len(parts[1]) > 12:
            return None
        name, expires, number, signature = parts[0], int(parts[1]), parts[2], parts[3]
        for token in self._tokens.all():
            if token.name == name and hmac.compare_digest(signature.encode(), _sign(token, number, expires).encode()):
                found = Session(name, number, expires, token.sha256)
                return found if self.holds(found) else None
        return None

    def holds(self, session: Session) -> bool:
        """Whether it is still good: its time is not over, and its token is there and may read."""
        if session.expires <= self._now() or session.number in self._ended:
            return False
        return any(each.sha256 == session.sha256 and each.may("read") for each in self._tokens.all())

    def end(self, session: Session) -> None:
        """Nobody comes in with it any more."""
        now = self._now()
        self._ended = {number: expires for number, expires in self._ended.items() if expires > now}
        self._ended[session.number] = session.expires

    def _now(self) -> int:
        return self._clock() // SECOND_US


def cookie_name(host: str) -> str:
    """Browsers keep one set of cookies for all ports of a host, so the port is in the name.

    >>> cookie_name("127.0.0.1:8750"), cookie_name("views.example.org")
    ('penstock_8750', 'penstock')
    """
    name, colon, port = host.rpartition(":")
    return f"penstock_{port}" if colon and name and port.isascii() and port.isdigit() else "penstock"


def cookie_in(header: str, host: str) -> str:
    """The value of our cookie among those that a browser sent; empty if it is not there."""
    for part in header.split(";"):
        name, _, value = part.strip().partition("=")
        if name == cookie_name(host):
            return value
    return ""


def cookie(host: str, value: str, *, is_secure: bool) -> str:
    """What sets the cookie; an empty value takes it away."""
    parts = [f"{cookie_name(host)}={value}", "Path=/", "HttpOnly", "SameSite=Strict"]
    parts += [f"Max-Age={SECONDS if value else 0}"] + (["Secure"] if is_secure else [])
    return "; ".join(parts)


def _sign(token: Token, number: str, expires: int) -> str:
    text = f"penstock session {token.name} {number} {expires}"
    return hmac.new(token.sha256.encode(), text.encode(), hashlib.sha256).hexdigest()
