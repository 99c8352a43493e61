"""Where reading begins: at the earliest record, the latest, an offset or a moment."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from penstock.errors import StartError

if TYPE_CHECKING:
    from penstock.log.partition import Partition

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Start:
    """A place in every partition. At most one of the fields is set; none means the earliest record."""

    offset: int | None = None
    arrived_us: int | None = None
    is_latest: bool = False

    def offset_in(self, partition: Partition) -> int:
        """The offset to begin at, as of now. It may be one that retention has removed, never one beyond the end."""
        if self.arrived_us is not None:
            return partition.offset_at(self.arrived_us)
        if self.is_latest:
            return partition.end().offset
        if self.offset is not None:
            return min(self.offset, partition.end().offset)
        return partition.start_offset()


EARLIEST = Start()
DIGITS_MAX = 19
"""Of an offset: a longer number cannot be one."""


def parse_start(value: str | int | datetime) -> Start:
    """Reads 'earliest', 'latest', an offset, or a time (ISO 8601; UTC where it names no zone). StartError otherwise.

    >>> parse_start("4711")
    Start(offset=4711, arrived_us=None, is_latest=False)
    """
    if isinstance(value, datetime):
        return Start(arrived_us=_microseconds(value))
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return Start(offset=value)
    if isinstance(value, str):
        if value == "earliest":
            return EARLIEST
        if value == "latest":
            return Start(is_latest=True)
        if value.isascii() and value.isdigit() and len(value) <= DIGITS_MAX:
            return Start(offset=int(value))
        try:
            return Start(arrived_us=_microseconds(datetime.fromisoformat(value)))
        except ValueError:
            pass
    raise StartError(value)


def parse_time(value: str | datetime) -> Start:
    """Like `parse_start`, but only a time will do."""
    start = parse_start(value)
    if start.arrived_us is None:
        raise StartError(value)
    return start


def _microseconds(moment: datetime) -> int:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)
