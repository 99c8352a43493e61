"""The tokens that open the service: each has a name and rights. Only hashes are kept; a token is shown once.

A token is 32 random bytes, so its hash needs no salt and no slowness: there is nothing to guess.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from penstock.errors import TokensUnreadable, TokenTaken, UnknownToken
from penstock.log.files import locked, make_directory, sync_directory

Right = Literal["read", "write", "admin"]
RIGHTS: tuple[Right, ...] = get_args(Right)
PREFIX = "pst_"
"""Tokens begin like this, so that people and scanners know one when they see it."""


@dataclass(frozen=True)
class Token:
    """What is kept of a token."""

    name: str
    sha256: str
    rights: tuple[Right, ...]
    """`read` views and topics, `write` to topics, or `admin`: both, and the metrics."""

    def may(self, right: Right) -> bool:
        """Whether it has the right, or one that holds it."""
        return right in self.rights or "admin" in self.rights


class Tokens:
    """The file of tokens, with mode 0600.

    It is read again when it changes: a token that is removed is shut out at once.
    Any number of processes may change it; threads may use one object at once.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: tuple[tuple[int, int, int], tuple[Token, ...]] | None = None

    def all(self) -> tuple[Token, ...]:
        """The tokens as they are now; none if there is no file. TokensUnreadable if it is not ours alone."""
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return ()
        version = (status.st_ino, status.st_mtime_ns, status.st_size)
        known = self._read
        if known is None or known[0] != version:
            known = self._read = (version, _read(self.path, status.st_mode))
        return known[1]

    @property
    def is_there(self) -> bool:
        """Whether there is a file of tokens, be it an empty one: whoever made it wants to be asked for a token."""
        return self.path.exists()

    def find(self, secret: str) -> Token | None:
        """The token with this secret. Takes as long for a wrong one as for a right one."""
        digest = _digest(secret)
        found = None
        for each in self.all():
            if hmac.compare_digest(each.sha256, digest):
                found = each
        return found

    def allow(self, token: Token, right: Right) -> bool:
        """Whether a token that was found before is still there, with this right."""
        return any(each.sha256 == token.sha256 and each.may(right) for each in self.all())

    def add(self, name: str, rights: Sequence[Right]) -> str:
        """Makes a token and returns its secret, which is kept nowhere. TokenTaken if the name is."""
        secret = PREFIX + secrets.token_urlsafe(32)
        with self._changing():
            before = self.all()
            if any(each.name == name for each in before):
                raise TokenTaken(name)
            self._write([*before, Token(name, _digest(secret), tuple(each for each in RIGHTS if each in rights))])
        return secret

    def remove(self, name: str) -> None:
        """Takes a token away. UnknownToken if there is none of that name."""
        with self._changing():
            before = self.all()
            left = [each for each in before if each.name != name]
            if len(left) == len(before):
                raise UnknownToken(name, [each.name for each in before])
            self._write(left)

    def _changing(self) -> AbstractContextManager[bool]:
        make_directory(self.path.parent)
        return locked(self.path.with_name(f".{self.path.name}.lock"))

    def _write(self, tokens: Iterable[Token]) -> None:
        text = json.dumps({"tokens": [asdict(each) for each in tokens]}, indent=2) + "\n"
        unfinished = self.path.with_name(f".{self.path.name}.{os.getpid()}.unfinished")
        # Never readable by others, not even for a moment.
        fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self.path)
        sync_directory(self.path.parent)


def _read(path: Path, mode: int) -> tuple[Token, ...]:
    if stat.S_IMODE(mode) & 0o077:
        found = f"others on this machine may use it: its mode is {stat.S_IMODE(mode):04o}, expected 0600"
        raise TokensUnreadable(str(path), found, f"to mend it: chmod 600 {path}")
    try:
        found_tokens = json.loads(path.read_text(encoding="utf-8"))["tokens"]
        return tuple(
            Token(str(each["name"]), str(each["sha256"]), cast("tuple[Right, ...]", tuple(each["rights"])))
            for each in found_tokens
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TokensUnreadable(
            str(path), f"it cannot be read: {error}", "expected: what `penstock token add` writes"
        ) from error


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
