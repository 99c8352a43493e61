"""To whom an alert goes: `mailto:`, `https:` or `topic:`, as a text that users write and as what it means."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote, urlsplit

from penstock.loopback import is_loopback

Kind = Literal["mail", "web", "topic"]

_ADDRESS = re.compile(r"[^\s@<>,;:\"()\[\]\\]+@[^\s@<>,;:\"()\[\]\\]+")
_TOPIC = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
EXPECTED = "mailto:ADDRESS, https://HOST/PATH or topic:NAME"


class ReceiverUnclear(ValueError):
    """A text that names no receiver. `expected` and `hint` say what would."""

    def __init__(self, expected: str, hint: str = "") -> None:
        super().__init__(expected)
        self.expected = expected
        self.hint = hint


@dataclass(frozen=True)
class Receiver:
    """Somebody who is told."""

    kind: Kind
    address: str = field(repr=False)
    """As the user wrote it. The path of a web hook is often a secret: people are shown `shown`."""

    @property
    def shown(self) -> str:
        """For people to see: of a web address only where it leads."""
        return shown_receiver(self.address)

    @property
    def addresses(self) -> list[str]:
        """Of a mail: to whom."""
        return [unquote(each.strip()) for each in self.address.removeprefix("mailto:").split(",")]

    @property
    def single(self) -> list[Receiver]:
        """One for each address of a mail, for a server may take it for one and not yet for another; else itself."""
        if self.kind != "mail":
            return [self]
        names = self.address.removeprefix("mailto:").split(",")
        return [Receiver("mail", f"mailto:{each.strip()}") for each in names]

    @property
    def topic(self) -> str:
        """Of a topic: its name."""
        return self.address.removeprefix("topic:")


def parse_receiver(text: str) -> Receiver:
    """What a text means. ReceiverUnclear if nobody can be told that way.

    >>> parse_receiver("topic:alarms").kind
    'topic'
    """
    scheme, colon, rest = text.partition(":")
    if colon and scheme == "mailto":
        found = Receiver("mail", text)
        if "?" in rest or not all(_ADDRESS.fullmatch(each) and each.isprintable() for each in found.addresses):
            raise ReceiverUnclear("mailto: and an address, such as mailto:ops@example.com")
        return found
    if colon and scheme in ("https", "http"):
        _check_web(text, scheme)
        return Receiver("web", text)
    if colon and scheme == "topic":
        if not _TOPIC.fullmatch(rest) or rest.endswith(".dead"):
            raise ReceiverUnclear("topic: and the name of a topic: a-z, 0-9, '.', '_' and '-'")
        return Receiver("topic", text)
    hint = f"did you mean 'mailto:{text}'?" if _ADDRESS.fullmatch(text) else ""
    raise ReceiverUnclear(EXPECTED, hint)


def shown_receiver(address: str) -> str:
    """The address without what may be a secret in it, whatever text it is.

    >>> shown_receiver("https://hooks.example.com/services/T0/B0/secret")
    'https://hooks.example.com/...'
    """
    scheme, _, rest = address.partition(":")
    is_web = scheme.strip().lower() in ("https", "http")
    if not is_web and not ({*"/?"} & {*rest, *scheme}):
        return address  # A mail's, a topic's, or a word that names nobody.
    if scheme == "mailto" and all(_ADDRESS.fullmatch(each.strip()) for each in rest.split(",")):
        return address
    try:
        parts = urlsplit(address.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host:
        return f"{scheme.strip().lower()}://..." if is_web else "..."
    place = f"{parts.scheme}://{f'[{host}]' if ':' in host else host}" + (f":{port}" if port else "")
    return f"{place}/..." if parts.path.strip("/") or parts.query or parts.fragment else place


def _check_web(text: str, scheme: str) -> None:
    expected = "a web address, such as https://hooks.example.com/x"
    if not text.isprintable() or not text.isascii() or " " in text:
        raise ReceiverUnclear(expected)
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ReceiverUnclear(expected, str(error)) from error
    if not host:
        raise ReceiverUnclear(expected)
    if parts.username is not None or parts.password is not None:
        raise ReceiverUnclear(expected, "without a user and a password in it: they would not be sent")
    if scheme == "http" and not is_loopback(host):
        raise ReceiverUnclear("https://: what is sent over http:// can be read on the way", "http:// is for localhost")
