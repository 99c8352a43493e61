"""What can go wrong on the way into the log, in it, and out of it again."""

from __future__ import annotations

import resource
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.clock import moment
from penstock.errors.base import PenstockError, did_you_mean
from penstock.redacted import redacted_url


class LogError(PenstockError):
    """Something is wrong with the log as a whole."""


class LogUrlError(LogError):
    """The address of the log is not one we know."""

    def __init__(self, url: str, found: str = "") -> None:
        self.url = redacted_url(url)
        super().__init__(
            f"log: cannot open {self.url!r}{f': {found}' if found else ''}\n"
            "  expected: dir:PATH, such as dir:./data/log, or kafka://HOST:PORT\n"
            '  set it with --log, PENSTOCK_LOG_URL or [log] url = "..." in penstock.toml'
        )


class NotAFolder(LogError):
    """A command about the files of a log, and the log has none."""

    def __init__(self, url: str, command: str) -> None:
        self.url = url
        super().__init__(
            f"log: {command} looks after the files of a log in a folder, and {url} is none\n"
            "  expected: --log dir:PATH\n  Kafka checks, drops and compacts by itself, as its topics are set"
        )


class KafkaMissing(LogError):
    """The log is in Kafka, and what speaks with it is not installed."""

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        super().__init__(
            f"log: {url} cannot be opened: {reason}\n  expected: the package confluent-kafka\n"
            "  install it with: pip install 'penstock[kafka]'"
        )


class KafkaUnavailable(LogError):
    """The brokers cannot be reached, or do not answer."""

    is_retryable = True

    def __init__(self, brokers: str, reason: str) -> None:
        self.brokers = brokers
        self.reason = reason
        super().__init__(
            f"log: Kafka at {brokers} cannot be used at the moment: {reason}\n"
            "  are the brokers running, can they be reached from here, and is it the right listener (plain or TLS)?"
        )


class KafkaRefused(LogError):
    """The brokers can be reached, and do not do what they were asked: not allowed, or not as they are set up."""

    def __init__(self, brokers: str, what: str, reason: str, code: int) -> None:
        self.brokers = brokers
        self.what = what
        self.reason = reason
        self.code = code
        """Kafka's number of the error."""
        expected, hint = _REFUSALS.get(code, _SET_UP)
        super().__init__(f"log: Kafka at {brokers} refuses {what}: {reason}\n  expected: {expected}\n  {hint}")


_NOT_ALLOWED = (
    "the user named by log.username is allowed to; without a name that is User:ANONYMOUS",
    "to allow it: kafka-acls.sh --add --allow-principal User:NAME ...; docs/kafka.md lists what Penstock does",
)
_SESSION = (
    "a session_timeout between the brokers' group.min.session.timeout.ms and group.max.session.timeout.ms",
    "give the consumer another one (6 seconds to 30 minutes, unless brokers are told otherwise), or tell the brokers",
)
_SET_UP = (
    "something that these brokers, as they are set up, can do",
    "look at the settings of the brokers and of the topic in Kafka, and at [log.conf]",
)
_REFUSALS = {26: _SESSION, 29: _NOT_ALLOWED, 30: _NOT_ALLOWED, 31: _NOT_ALLOWED, 53: _NOT_ALLOWED}
"""By the numbers of Kafka's protocol: the session timeout; topic, group, cluster and transactional id."""


class CorruptionError(LogError):
    """Bytes on disk are not what was written. Nothing was changed; reading stops before the bad place."""

    def __init__(self, path: Path, found: str, *, offset: int | None = None, position: int | None = None) -> None:
        self.path = path
        self.found = found
        self.offset = offset
        self.position = position
        where = ", ".join(
            f"{name} {value}" for name, value in (("offset", offset), ("byte", position)) if value is not None
        )
        place = f"{path.parent.parent.name}/{path.parent.name}" if path.parent.name.isdigit() else path.parent.name
        super().__init__(
            f"log: {path.name} is damaged{f' at {where}' if where else ''}: {found}\n"
            f"  file: {path}\n"
            "  nothing was changed, and nothing after this place is trusted\n"
            f"  to see what is whole: penstock log check {place}"
        )


class PartitionReadOnly(LogError):
    """A write or fsync failed. Whether the last frame reached the disk is unknown, so this process appends no more."""

    def __init__(self, place: str, cause: OSError) -> None:
        self.place = place
        self.cause = cause
        super().__init__(
            f"log: {place} is read-only in this process since a write failed: {cause}\n"
            "  everything acknowledged is safe; what was not acknowledged must be sent again\n"
            "  look at the disk (space, health), then start this process again"
        )


class OutOfFiles(LogError):
    """The process may open no more files. Nothing was written to the file that could not be opened."""

    is_retryable = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self.limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        super().__init__(
            f"log: {path.name} cannot be opened: this process may have {self.limit:,} files open, and has them, or\n"
            "  the whole machine has no more\n"
            f"  file: {path}\n"
            "  what was not acknowledged must be sent again; raise the limit (ulimit -n, LimitNOFILE= in systemd)"
        )


class OffsetOutOfRange(LogError):
    """The offset asked for is not in the log: retention removed it, or it is not written yet."""

    def __init__(self, place: str, offset: int, start: int, end: int) -> None:
        self.place = place
        self.offset = offset
        self.start = start
        self.end = end
        if offset < start:
            why = f"retention removed {start - offset} records from offset {offset} on"
        else:
            why = f"the log ends {offset - end} records before it"
        super().__init__(
            f"log: {place} has no offset {offset}\n"
            f"  it holds offsets {start} up to {end}; {why}\n"
            "  start at 'earliest' to read what is there"
        )


class ProducerFenced(LogError):
    """A producer of the same name and a newer epoch has written; the older one must stop."""

    def __init__(self, place: str, epoch: int, newest: int) -> None:
        self.place = place
        self.epoch = epoch
        self.newest = newest
        super().__init__(
            f"log: {place} refuses a producer of epoch {epoch}: epoch {newest} of the same name has taken over\n"
            "  nothing of this batch was stored; stop this producer"
        )


class TooManyKeys(LogError):
    """More idempotency keys than a partition can remember. Nothing was stored under the new one."""

    is_retryable = True

    def __init__(self, place: str, limit: int) -> None:
        self.place = place
        self.limit = limit
        super().__init__(
            f"log: {place} remembers {limit:,} idempotency keys and takes no further one\n"
            "  expected: fewer keys within seven days; nothing was stored here under this one\n"
            "  send many events in each body, spread them over more partitions, or use a producer with a name"
        )


class ArrivalRefused(LogError):
    """Arrival never goes back: records that arrived earlier cannot be put behind later ones."""

    def __init__(self, place: str, arrived_us: int, newest_us: int) -> None:
        self.place = place
        self.arrived_us = arrived_us
        self.newest_us = newest_us
        super().__init__(
            f"log: {place} cannot take records that arrived at {moment(arrived_us)}\n"
            f"  it holds later arrivals already, up to {moment(newest_us)}; nothing of this batch was stored\n"
            "  load the history into a topic of its own, before anything else is produced there"
        )


class ArrivalAhead(LogError):
    """Records that arrived in the future: all that come until then would have to arrive at that moment, too."""

    def __init__(self, place: str, arrived_us: int, now_us: int) -> None:
        self.place = place
        self.arrived_us = arrived_us
        self.now_us = now_us
        super().__init__(
            f"log: {place} cannot take records that arrived at {moment(arrived_us)}\n"
            f"  expected: at most a day ahead of the clock, which says {moment(now_us)}; nothing of this batch was "
            "stored\n  look at where these times come from, and at the clock of this machine"
        )


class ClockAhead(LogError):
    """The clock of this machine is years ahead of when the topic was last written: one of them is wrong."""

    is_retryable = True

    def __init__(self, topic: str, now_us: int, written_us: int, path: Path) -> None:
        self.topic = topic
        self.now_us = now_us
        self.written_us = written_us
        self.path = path
        super().__init__(
            f"log: topic {topic!r} cannot stamp records: the clock of this machine says {moment(now_us)}\n"
            f"  the topic was last written at {moment(written_us)}, by the times of its files; expected: at most two "
            "years later; nothing was stored\n"
            f"  set the clock; if it is right, and the topic was not used for so long: touch {path}"
        )


class ForkedHandle(LogError):
    """The log was opened before a fork, and locks are shared with the parent: open it again in the child."""

    def __init__(self, place: str, opened_in: int, used_in: int) -> None:
        self.opened_in = opened_in
        self.used_in = used_in
        super().__init__(
            f"log: {place} was opened by process {opened_in} and is used by process {used_in}\n"
            "  a fork shares the parent's locks; open the log in the child, or start it with 'spawn'"
        )


class TopicError(PenstockError):
    """Something is wrong with one topic."""


class RecordsRefused(TopicError):
    """Records do not fit the topic's schema. Nothing of the batch was stored."""

    def __init__(
        self, topic: str, count: int, index: int, column: str | None, reason: str, *, is_complete: bool = True
    ) -> None:
        self.topic = topic
        self.count = count
        self.index = index
        self.column = column
        self.reason = reason
        place = f"record {index}" if column is None else f"record {index}, column {column!r}"
        super().__init__(
            f"log: topic {topic!r} cannot take {'' if is_complete else 'at least '}{count} of these records\n"
            f"  the first is {place}: {reason}\n"
            "  nothing was stored; a producer would store the others, and keep these as dead letters"
        )


class RecordTooLarge(TopicError):
    """Records are larger than the log takes. With `rows`, nothing of their batch was stored, and the others fit."""

    def __init__(
        self, place: str, size: int, limit: int, rows: Mapping[int, int] | None = None,
        to_allow: str = "raise log.record_bytes_max",
    ) -> None:  # fmt: skip
        self.place = place
        self.size = size
        self.limit = limit
        self.rows = dict(rows or {})
        """The places in the batch of all that are too large, with their sizes."""
        which = f"record {min(self.rows)} of these" if self.rows else "one of these records"
        stored = "nothing of this batch was stored there" if self.rows else "some of this batch may be stored"
        super().__init__(
            f"log: {place} cannot take {which}: it has {size:,} bytes\n"
            f"  expected: at most {limit:,}; {stored}\n"
            f"  keep large content elsewhere and send where it is, or {to_allow};\n"
            "  a producer would keep its beginning as a dead letter"
        )

    def reason(self, row: int) -> str:
        """Why one of `rows` is rejected."""
        return f"expected at most {self.limit:,} bytes, found {self.rows[row]:,}"


class UnknownTopic(TopicError):
    """Nothing has that name."""

    def __init__(self, name: str, known: Sequence[str], log: str) -> None:
        self.name = name
        self.known = tuple(known)
        shown = ", ".join(sorted(known)[:10]) or "none yet"
        super().__init__(
            f"log: nothing is named {name!r} in {log}\n  known topics: {shown}{did_you_mean(name, known)}\n"
            f"  to make it: penstock topic create {name} --schema 'time timestamp, ...'"
        )


class TopicExists(TopicError):
    """The name is taken."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"log: a topic named {name!r} is there already\n"
            f"  to look at it: penstock topic show {name}; to change it: penstock topic alter {name}"
        )


class TopicDeleted(TopicError):
    """The topic was deleted while this process used it. What was acknowledged before is gone with it."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"log: topic {name!r} was deleted while in use\n  nothing of this batch was stored")


class TopicNameError(TopicError):
    """The name is not allowed."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"log: {name!r} cannot name a topic\n"
            "  expected: a-z, 0-9, '.', '_' and '-', beginning with a letter or digit, at most 128 characters"
        )


class TopicDefinitionError(TopicError):
    """A key, an event time or a setting does not fit the topic."""

    def __init__(self, topic: str, setting: str, expected: str, found: str, hint: str = "") -> None:
        self.topic = topic
        self.setting = setting
        self.expected = expected
        self.found = found
        self.hint = hint.strip()
        super().__init__(f"log: topic {topic!r} cannot have {setting} = {found}\n  expected: {expected}{hint}")


class DurationError(PenstockError):
    """A length of time that cannot be read."""

    def __init__(self, text: str, found: str) -> None:
        self.text = text
        self.found = found
        super().__init__(
            f"{text!r} is not a length of time: {found}\n"
            "  expected: a number and a unit, such as '500ms', '10 minutes', '1h 30m' or '7 days'\n"
            "  units: us, ms, s, m, h, d, w, or whole words such as 'seconds'"
        )


class SchemaError(PenstockError):
    """Columns that cannot be read, or a type that is not kept. `position` counts characters in `ddl`, from 0."""

    def __init__(self, ddl: str, position: int, expected: str, found: str, hint: str = "") -> None:
        self.ddl = ddl
        self.position = position
        self.expected = expected
        self.found = found
        self.hint = hint
        start = max(0, position - 60)
        shown = "".join(" " if character.isspace() else character for character in ddl[start : position + 40])
        before = "..." if start else ""
        after = "..." if position + 40 < len(ddl) else ""
        super().__init__(
            f"schema: found {found} at character {position + 1}\n"
            f"    {before}{shown}{after}\n"
            f"    {' ' * (len(before) + position - start)}^\n"
            f"  expected: {expected}" + (f"\n  {hint}" if hint else "")
        )


class SchemaRefused(PenstockError):
    """A change of columns that old records could not follow. `column` is a path such as 'address.street'."""

    def __init__(self, column: str, before: str, after: str, hint: str = "") -> None:
        self.column = column
        self.before = before
        self.after = after
        super().__init__(
            f"schema: column {column!r} cannot change this way\n"
            f"  before: {before}\n"
            f"  after:  {after}\n"
            "  allowed: new columns without NOT NULL, and wider numbers (int to bigint, float to double, decimals)\n"
            f"  {hint or 'make a new topic for the new shape, and leave this one as it is'}"
        )


class BatchTooLarge(PenstockError):
    """More text in one column than fits into one batch."""

    def __init__(self, column: str, rows: int) -> None:
        self.column = column
        self.rows = rows
        super().__init__(
            f"log: {rows} events are too much at once: column {column!r} holds more than 2 GiB\n"
            "  nothing of them was stored; send them in smaller pieces"
        )


class TimeRangeError(PenstockError):
    """A range of time that cannot be read."""

    def __init__(self, what: str, found: object, why: str = "") -> None:
        self.what = what
        self.found = found
        super().__init__(
            f"{what} cannot be {found!r}{f': {why}' if why else ''}\n"
            "  expected: a pair (from, until), such as ('2026-01-31T12:00:00Z', None), or a list of pairs\n"
            "  a moment is ISO text or a datetime (UTC where it names no zone), or microseconds since 1970"
        )


class UnknownColumn(TopicError):
    """The topic has no column of that name."""

    def __init__(self, topic: str, name: str, known: Sequence[str]) -> None:
        self.topic = topic
        self.name = name
        self.known = tuple(known)
        super().__init__(
            f"log: topic {topic!r} has no column named {name!r}\n"
            f"  columns: {', '.join(known)}{did_you_mean(name, known)}"
        )


class TopicReplaced(TopicError):
    """The topic was deleted and made again under its name: offsets of the old one mean nothing in the new one."""

    def __init__(self, name: str, expected: str, found: str) -> None:
        self.name = name
        self.expected = expected
        self.found = found
        super().__init__(
            f"log: topic {name!r} is not the one that was being read: it was deleted and made again\n"
            f"  expected: topic {expected}; found: topic {found}\n"
            "  nothing was read; start the query again, a stream with a new checkpoint"
        )
