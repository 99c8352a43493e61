"""The root of all errors, and what their messages share."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from penstock.redacted import redacted


class PenstockError(Exception):
    """The root of the tree: catch this to catch everything Penstock raises on purpose."""

    is_retryable = False

    def __init__(self, *arguments: object) -> None:
        """Whatever address a message quotes, its password is not in it."""
        super().__init__(*(redacted(each) if isinstance(each, str) else each for each in arguments))


class InvariantBroken(PenstockError):
    """What protects data does not hold: a fault of Penstock, or something else writes into its files and tables."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"penstock: {found}\n"
            "  nothing was stored, so nothing is wrong with what is there\n"
            "  please report this as an error of Penstock, with the lines above it"
        )


def require(holds: bool, found: str) -> None:
    """InvariantBroken unless this holds. Unlike `assert` it is never left out (`python -O`)."""
    if not holds:
        raise InvariantBroken(found)


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """One more line for a message: the nearest known name, or nothing."""
    near = get_close_matches(name, known, n=1)
    return f"\n  did you mean {near[0]!r}?" if near else ""
