"""What can go wrong while a file is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.errors.base import PenstockError, did_you_mean


class LoadError(PenstockError):
    """Something is wrong with a file to be loaded, or with the way it was asked for."""


class FileFormatError(LoadError):
    """The file cannot be read as what it should be."""

    def __init__(self, path: Path, expected: str, found: str, hint: str) -> None:
        self.path = path
        self.expected = expected
        self.found = found
        super().__init__(f"load: {path} cannot be read\n  expected: {expected}\n  found: {found}\n  {hint}")


class FileColumnsError(LoadError):
    """The columns of the file are not those of the topic. Sent as it is, every row of it would be a dead letter."""

    def __init__(self, path: Path, topic: str, column: str, found: str, known: Sequence[str], hint: str) -> None:
        self.path = path
        self.topic = topic
        self.column = column
        self.known = tuple(known)
        super().__init__(
            f"load: {path} does not fit topic {topic!r}: {found}\n"
            f"  columns of the topic: {', '.join(known)}{did_you_mean(column, known)}\n"
            f"  nothing was stored; {hint}"
        )


class ArrivalColumnError(LoadError):
    """The column given as arrival does not say when records arrived."""

    def __init__(self, path: Path, column: str, found: str) -> None:
        self.path = path
        self.column = column
        self.found = found
        super().__init__(
            f"load: --arrived {column} cannot be used for {path}\n"
            "  expected: a column of times that the first rows of the file have\n"
            f"  found: {found}; nothing was stored"
        )


class FileChanged(LoadError):
    """Somebody wrote to the file while it was loaded: which rows are stored depends on when they were read."""

    def __init__(self, path: Path, rows: int) -> None:
        self.path = path
        self.rows = rows
        super().__init__(
            f"load: {path} changed while it was loaded; {rows} rows of it were read before\n"
            "  those rows are stored, and the changed file counts as another file: loading it stores them again\n"
            "  load only files that are finished; for a file that grows: tail -f FILE | penstock produce TOPIC"
        )


class MoveRefused(LoadError):
    """A log cannot be moved as it is. What was moved before stays; run it again once that is mended."""

    def __init__(self, place: str, reason: str) -> None:
        self.place = place
        self.reason = reason
        super().__init__(
            f"move: {place} cannot be moved: {reason}\n"
            "  expected: nobody writes to either side, and Kafka's topic is new or was made by this move\n"
            "  the folder is as it was; to begin anew, delete the topic in Kafka with penstock topic delete"
        )


class NothingToMove(LoadError):
    """No topic of the log matches. Nothing was done."""

    def __init__(self, log: str, pattern: str, known: Sequence[str]) -> None:
        self.log = log
        self.pattern = pattern
        self.known = known
        named = f"its topics: {', '.join(known)}" if known else "there is no topic in it; is this the folder?"
        super().__init__(f"move: no topic of {log} matches {pattern!r}\n  {named}")
