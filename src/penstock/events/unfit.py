"""Why a value does not fit its column, in words."""

from __future__ import annotations

from decimal import Decimal

from penstock.errors import did_you_mean


class Unfit(ValueError):
    """A value does not fit its column. `path` leads from the column to the place, such as ".street" or "[3]"."""

    def __init__(self, reason: str, path: str = "") -> None:
        self.reason = reason
        self.path = path
        super().__init__(reason)


def unknown_name(name: object, known: list[str]) -> str:
    """The reason for refusing a field that is not in the schema."""
    names = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
    near = did_you_mean(name, known).replace("\n ", ";") if isinstance(name, str) else ""
    return f"nothing is named {shown(name)}; known: {names}{near}"


def described(value: object) -> str:
    """What was found, for a reason: its kind and the beginning of its text."""
    kinds = {str: "the text", bool: "the boolean", int: "the number", float: "the number", Decimal: "the number"}
    kind = kinds.get(type(value), f"a {type(value).__name__},")
    return f"{kind} {value}" if isinstance(value, Decimal) and len(str(value)) < 80 else f"{kind} {shown(value)}"


def shown(value: object) -> str:
    """A value as people can read it on one line, however long or odd it is."""
    try:
        text = repr(value)
    except Exception:
        return "something that cannot be shown"
    text = text if text.isprintable() else text.encode("ascii", "backslashreplace").decode()
    return shortened(text)


def shortened(text: str) -> str:
    """At most 80 characters of a text that came from outside."""
    return text if len(text) <= 80 else text[:77] + "..."
