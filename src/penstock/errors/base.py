"""The root of all errors, and what their messages share."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches


class PenstockError(Exception):
    """The root of the tree: catch this to catch everything Penstock raises on purpose."""

    is_retryable = False


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """One more line for a message: the nearest known name, or nothing."""
    near = get_close_matches(name, known, n=1)
    return f"\n  did you mean {near[0]!r}?" if near else ""
