"""Addresses without the passwords in them, for messages and `repr`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import URL

SECRETS = "secret|password|passwd|pwd|token|access[._]?key"
"""Names whose values are not shown, much the same as those of Spark. Upper and lower case are one."""

# Up to the last @ of a word: a password may hold an @ or a slash that should have been written in another way.
_IN_TEXT = re.compile(r"(://[^\s:/?#@'\"]*):[^\s'\"]*@")
_IN_URL = re.compile(r"^([\w+.-]+:/*[^:/?#@]*):.*@", re.DOTALL)
_IN_QUERY = re.compile(rf"([?&;][\w.-]*(?:{SECRETS})[\w.-]*=)[^\s&;'\"]*", re.IGNORECASE)
_WITHOUT = ("dir:", "sqlite:", "file:")
"""Addresses that are paths."""


def redacted(text: str) -> str:
    """A message without the passwords of addresses in it.

    >>> redacted("views: postgresql://shop:hush@db/views?sslpassword=hush does not answer")
    'views: postgresql://shop:***@db/views?sslpassword=*** does not answer'
    """
    if "=" not in text and "@" not in text:
        return text
    return _IN_QUERY.sub(r"\1***", _IN_TEXT.sub(r"\1:***@", text))


def redacted_url(url: str) -> str:
    """An address without its password, be it a valid one or not.

    >>> redacted_url("postgresql:/shop:hu sh@db/views")
    'postgresql:/shop:***@db/views'
    """
    return url if url.startswith(_WITHOUT) else redacted(_IN_URL.sub(r"\1:***@", url))


def database_url(text: str) -> URL:
    """An address as SQLAlchemy reads it. ValueError says what is wrong with it, without repeating any of it."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise ValueError("it is not of the form SCHEME://USER:PASSWORD@HOST:PORT/DATABASE") from None
    if "@" in (url.host or ""):
        raise ValueError("there is a second @; in a user or a password it is written %40")
    return url


def shown_values(table: Mapping[str, str]) -> dict[str, str]:
    """Settings of others by name, for `repr`: without the values that are secrets."""
    return {
        name: "***" if re.search(SECRETS, name, re.IGNORECASE) else redacted(value) for name, value in table.items()
    }
