"""What a consumer can be told when it is made, checked and in plain numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.consume.position import OnRemoved
from penstock.consume.start import Start, parse_start
from penstock.durations import parse_duration
from penstock.errors import ConsumerOptionError

SESSION_SECONDS_MIN = 0.1


@dataclass(frozen=True)
class ConsumerOptions:
    """Options of a consumer."""

    topics: tuple[str, ...]
    """Names and patterns."""
    group: str | None
    start: Start
    """Where to begin if the group has no committed offset."""
    commit_seconds: float | None
    """How often progress is committed by itself; None: never."""
    session_seconds: float
    """So long without a sign of life, and a member is taken for frozen."""
    processing_seconds: float
    """So long without a poll, and a member gives its partitions up."""
    max_rows: int
    """The most records that one poll returns."""
    on_removed: OnRemoved
    """What happens where retention was faster than the consumer."""

    @property
    def reader(self) -> str:
        """Who reads, for messages."""
        return "a consumer" if self.group is None else f"group {self.group!r}"


def consumer_options(
    topics: Sequence[str],
    *,
    group: str | None,
    start: str | int | datetime,
    auto_commit: str | timedelta | None,
    session_timeout: str | timedelta,
    processing_timeout: str | timedelta,
    max_rows: int,
    on_removed: OnRemoved,
) -> ConsumerOptions:
    """Reads the options as users write them. ConsumerOptionError, StartError or DurationError if one makes no sense."""
    options = ConsumerOptions(
        tuple(topics), group, parse_start(start),
        None if auto_commit is None else parse_duration(auto_commit).total_seconds(),
        parse_duration(session_timeout).total_seconds(), parse_duration(processing_timeout).total_seconds(),
        max_rows, on_removed,
    )  # fmt: skip
    for option, is_fine, expected, found in (
        ("topics", bool(topics), "the name or pattern of at least one topic", options.topics),
        ("max_rows", max_rows > 0, "at least 1", max_rows),
        ("session_timeout", options.session_seconds >= SESSION_SECONDS_MIN, "at least '100ms'", session_timeout),
        ("processing_timeout", options.processing_seconds > 0, "more than zero", processing_timeout),
        ("on_removed", on_removed in ("continue", "raise"), "'continue' or 'raise'", on_removed),
    ):
        if not is_fine:
            raise ConsumerOptionError(option, expected, found)
    return options
