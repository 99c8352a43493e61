"""Texts that every database can hold."""

from __future__ import annotations


def storable(text: str) -> str:
    """Without what databases cannot hold.

    >>> storable("a\\0b\\udcff")
    'ab?'
    """
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def error_text(error: BaseException) -> str:
    """What an error says, whatever it is: also one that cannot say so itself."""
    try:
        return storable(str(error))
    except Exception:
        return "it cannot be put in words"
