"""What commands print: tables for people, JSON for programs."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from penstock.printable import printable, terminal_of

if TYPE_CHECKING:
    from penstock.cli.terminal import Terminal

WIDTH_UNLIMITED = 10_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def print_json(document: object) -> None:
    """One JSON document, indented: `jq` and people read it alike."""
    print(json.dumps(document, indent=2, ensure_ascii=False, default=str))


def print_json_line(document: object) -> None:
    """One JSON document on one line, as streams of them are read."""
    print(json.dumps(document, ensure_ascii=False, default=str), flush=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """A table. Numbers are aligned right; into a file or a pipe it is printed as wide as it is."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    listed = [list(row) for row in rows]
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False, show_edge=False)
    for number, column in enumerate(columns):
        is_number = bool(listed) and all(isinstance(row[number], int | float | None) for row in listed)
        table.add_column(Text(printable(column)), justify="right" if is_number else "left", overflow="fold")
    for row in listed:
        table.add_row(*(Text(printable(_cell(value))) for value in row))
    console = _console()
    with console.capture() as captured:
        console.print(table)
    # Written by ourselves, so that a closed pipe is noticed in one place.
    terminal_of(sys.stdout).write("\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n")


def bytes_text(size: float) -> str:
    """A size for people.

    >>> bytes_text(1536), bytes_text(17), bytes_text(128 << 20)
    ('1.5 KiB', '17 B', '128 MiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            number = f"{size:.1f}".removesuffix(".0") if size < 100 else f"{size:.0f}"
            return f"{number} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def counted(count: int, noun: str) -> str:
    """So many of something, for people.

    >>> counted(1, "view"), counted(1200, "view")
    ('1 view', '1,200 views')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def rate_text(count: float, seconds: float) -> str:
    """How many in a second, for people."""
    return f"{count / seconds:,.0f}/s" if seconds > 0 else "-"


def delay_text(delay: timedelta) -> str:
    """How long something took, for people.

    >>> delay_text(timedelta(seconds=1.5)), delay_text(timedelta(days=2, minutes=3))
    ('1.500 s', '2 days, 0:03:00')
    """
    seconds = delay.total_seconds()
    return str(delay).partition(".")[0] if seconds >= 60 else f"{seconds:.3f} s"


def moment(us: int | None) -> str | None:
    """A time in UTC: None stays None.

    >>> moment(0)
    '1970-01-01T00:00:00Z'
    """
    if us is None:
        return None
    text = (_EPOCH + timedelta(microseconds=us)).isoformat()
    return text.replace("+00:00", "Z")


def span_text(low_us: int | None, high_us: int | None) -> str:
    """A stretch of time for people."""
    if low_us is None or high_us is None:
        return "-"
    low, high = (moment(us) or "" for us in (low_us, high_us))
    return low if low == high else f"{low} .. {high}"


def hours_text(hours: Sequence[tuple[int, int]]) -> str:
    """Hours of event time for people, such as `2026-01-01T00 .. 2026-01-01T05`."""
    return ", ".join(_hour(first) if first == last else f"{_hour(first)} .. {_hour(last)}" for first, last in hours)


def plain(value: Any) -> Any:
    """A value whose names are texts, as JSON wants them."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(in_json(key)): plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


def in_json(value: Any) -> Any:
    """A value that JSON has no word for, as text."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def with_windows(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row in which each window is two columns, as in the database."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict) and list(value) == ["start", "end"]:
            found |= {f"{name}_start": value["start"], f"{name}_end": value["end"]}
        else:
            found[name] = value
    return found


def in_cell(value: Any) -> Any:
    """A value of an event or a view as a table shows it."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return (
        json.dumps(plain(value), ensure_ascii=False, default=in_json)
        if isinstance(value, dict | list)
        else in_json(value)
    )


def _hour(hour: int) -> str:
    try:
        return (_EPOCH + timedelta(hours=hour)).strftime("%Y-%m-%dT%H")
    except OverflowError:
        return f"hour {hour}"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _console() -> Terminal:
    from penstock.cli.terminal import Terminal

    is_terminal = sys.stdout.isatty()
    return Terminal(width=None if is_terminal else WIDTH_UNLIMITED, highlight=False, force_terminal=is_terminal or None)
