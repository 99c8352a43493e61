"""What can go wrong on the way into the log, in it, and out of it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from penstock.errors.base import PenstockError, did_you_mean


class LogError(PenstockError):
    """Something is wrong with the log as a whole."""


class LogUrlError(LogError):
    """The address of the log is not one we know."""

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(
            f"log: cannot open {url!r}\n  expected: dir:PATH, such as dir:./data/log\n"
            '  set it with --log, PENSTOCK_LOG_URL or [log] url = "..." in penstock.toml'
        )


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


class ArrivalRefused(LogError):
    """Arrival never goes back: records that arrived earlier cannot be put behind later ones."""

    def __init__(self, place: str, arrived_us: int, newest_us: int) -> None:
        self.place = place
        self.arrived_us = arrived_us
        self.newest_us = newest_us
        super().__init__(
            f"log: {place} cannot take records that arrived at {_moment(arrived_us)}\n"
            f"  it holds later arrivals already, up to {_moment(newest_us)}; nothing of this batch was stored\n"
            "  load the history into a topic of its own, before anything else is produced there"
        )


def _moment(us: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)).isoformat(sep=" ")


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

    def __init__(self, topic: str, count: int, index: int, column: str | None, reason: str) -> None:
        self.topic = topic
        self.count = count
        self.index = index
        self.column = column
        self.reason = reason
        place = f"record {index}" if column is None else f"record {index}, column {column!r}"
        super().__init__(
            f"log: topic {topic!r} cannot take {count} of these records\n"
            f"  the first is {place}: {reason}\n"
            "  nothing was stored; a producer would store the others, and keep these as dead letters"
        )


class UnknownTopic(TopicError):
    """Nothing has that name."""

    def __init__(self, name: str, known: Sequence[str], root: Path) -> None:
        self.name = name
        self.known = tuple(known)
        shown = ", ".join(sorted(known)[:10]) or "none yet"
        super().__init__(
            f"log: nothing is named {name!r} in {root}\n  known topics: {shown}{did_you_mean(name, known)}\n"
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


class SettingsError(PenstockError):
    """Something in penstock.toml, the environment or a flag is wrong. `where` says which of them, and the line."""

    def __init__(self, where: str, text: str) -> None:
        self.where = where
        super().__init__(text)


class SettingsFileError(SettingsError):
    """The settings file is missing, unreadable or not TOML."""

    def __init__(self, path: Path, found: str) -> None:
        self.path = path
        self.found = found
        super().__init__(
            str(path),
            f"settings: {path} cannot be read: {found}\n"
            "  expected: a TOML file with sections such as [log] and [spark]\n"
            "  mend it, or point PENSTOCK_CONFIG at another file",
        )


class UnknownSetting(SettingsError):
    """Nothing has that name. A setting that is silently ignored would be worse than none."""

    def __init__(self, name: str, where: str, known: Sequence[str]) -> None:
        self.name = name
        self.known = tuple(known)
        super().__init__(
            where,
            f"settings: nothing is named {name!r}\n  {where}\n"
            f"  known names: {', '.join(known)}{did_you_mean(name, known)}",
        )


class SettingValueError(SettingsError):
    """The value is not one that the setting can have."""

    def __init__(self, name: str, where: str, expected: str, found: object) -> None:
        self.name = name
        self.expected = expected
        self.found = found
        super().__init__(
            where,
            f"settings: {name} cannot be {found!r}\n  {where}\n  expected: {expected}\n"
            "  every setting and its default: docs/settings.md",
        )


class JavaMissing(PenstockError):
    """Spark runs on Java, and there is none here that is new enough. `found` is None where there is none at all."""

    def __init__(self, found: str | None, *, needed: int) -> None:
        self.found = found
        self.needed = needed
        super().__init__(
            f"Spark needs Java {needed} or newer, and {found or 'no java was found on PATH or in JAVA_HOME'}: "
            f"install it (Debian and Ubuntu: apt install openjdk-{needed}-jre-headless; "
            f"macOS: brew install openjdk@{needed}) or point JAVA_HOME at one."
        )


class ProducerError(PenstockError):
    """Something is wrong with one producer."""


class ProducerSettingError(ProducerError):
    """A setting that no producer can have."""

    def __init__(self, topic: str, setting: str, expected: str, found: object) -> None:
        self.topic = topic
        self.setting = setting
        self.expected = expected
        self.found = found
        super().__init__(
            f"producer of {topic!r}: {setting} cannot be {found!r}\n  expected: {expected}\n  nothing was sent"
        )


class ProducerClosed(ProducerError):
    """The producer was closed before this was sent."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(
            f"producer of {topic!r} is closed\n  what was sent before is on disk; this was not sent\n"
            "  make a new producer, or send before the end of the with-block"
        )


class NotAnEvent(ProducerError):
    """What was given cannot be sent: it is not an event, nor many of them."""

    def __init__(self, topic: str, found: object) -> None:
        self.topic = topic
        self.found_type = type(found).__name__
        hint = {
            "str": "a text of JSON lines is sent as bytes: text.encode()",
            "generator": "take some of it at a time: list(itertools.islice(events, 10_000))",
        }.get(self.found_type, "wrap what you have in a dict whose names are the topic's columns")
        super().__init__(
            f"producer of {topic!r} cannot send a {self.found_type}\n"
            "  expected: a dict, a list of dicts, an Arrow table or batch, a pandas DataFrame, or bytes of JSON lines\n"
            f"  nothing was sent; {hint}"
        )


class SequenceRefused(ProducerError):
    """A sequence is missing, not wanted, or not greater than the one before. Taken as a retry, it would be lost."""

    def __init__(self, topic: str, name: str | None, expected: str, found: object) -> None:
        self.topic = topic
        self.name = name
        self.expected = expected
        self.found = found
        who = f"producer {name!r} of {topic!r}" if name is not None else f"producer of {topic!r} without a name"
        super().__init__(
            f"{who} cannot send with sequence={found!r}\n  expected: {expected}\n"
            "  nothing was sent; to send something again, make a new producer of the same name"
        )


class NotAcknowledged(ProducerError, TimeoutError):
    """The time ran out before the answer came. What was sent is still under way, not lost."""

    is_retryable = True

    def __init__(self, what: str, timeout: float, waiting: int | None = None) -> None:
        self.what = what
        self.timeout = timeout
        self.waiting = waiting
        many = f" ({waiting} batches are waiting)" if waiting is not None else ""
        super().__init__(
            f"producer: {what} was not acknowledged within {timeout:.3g} s{many}\n"
            "  it is still under way and may yet be stored; wait again, and look at the disk and at who holds the log"
        )


class SpillDamaged(ProducerError):
    """Events that waited on disk for their turn cannot be read back. They were never acknowledged."""

    def __init__(self, path: Path, position: int, found: str) -> None:
        self.path = path
        self.position = position
        self.found = found
        super().__init__(
            f"producer: spilled events are damaged at byte {position}: {found}\n  file: {path}\n"
            "  they were not acknowledged and must be sent again; look at the health of the disk"
        )


class GroupError(PenstockError):
    """Something is wrong with a consumer or its group."""


class GroupNameError(GroupError):
    """The name is not allowed."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"consumer: {name!r} cannot name a group\n"
            "  expected: a-z, 0-9, '.', '_' and '-', beginning with a letter or digit, at most 128 characters"
        )


class UnknownGroup(GroupError):
    """Nothing has that name."""

    def __init__(self, name: str, known: Sequence[str], root: Path) -> None:
        self.name = name
        self.known = tuple(known)
        super().__init__(
            f"consumer: no group is named {name!r} in {root}\n"
            f"  known groups: {', '.join(known) or 'none yet'}{did_you_mean(name, known)}\n"
            "  a group is made by its first consumer"
        )


class GroupActive(GroupError):
    """The group has living members: what is changed under their feet they would overwrite with their next commit."""

    is_retryable = True

    def __init__(self, group: str, members: Sequence[str]) -> None:
        self.group = group
        self.members = tuple(members)
        super().__init__(
            f"consumer: group {group!r} cannot be changed while it is at work\n"
            f"  living members: {', '.join(members)}\n"
            "  nothing was changed; stop them first, or let a member seek"
        )


class NoGroup(GroupError):
    """A consumer without a group reads everything, and keeps no progress."""

    def __init__(self, topics: Sequence[str]) -> None:
        self.topics = tuple(topics)
        names = ", ".join(map(repr, topics))
        super().__init__(
            f"consumer: there is nothing to commit to; the consumer of {names} has no group\n"
            f"  give it one: log.consumer({names}, group='...')"
        )


class MemberEvicted(GroupError):
    """This consumer lost its partitions to others of its group. `poll` joins again; what was not committed comes again.

    Raised by `commit` until then, so that nobody takes records for committed that others get again.
    """

    is_retryable = True

    def __init__(self, group: str, member: str, why: str, lost: Sequence[str] = ()) -> None:
        self.group = group
        self.member = member
        self.why = why
        self.lost = tuple(lost)
        self.fields = (group, member, why, self.lost)
        partitions = f"; others may have taken over {', '.join(lost)}" if lost else ""
        super().__init__(
            f"consumer: {member} is no longer a member of group {group!r}: {why}\n"
            f"  nothing was committed{partitions}\n"
            "  what was polled since the last commit is delivered again; poll() joins the group again"
        )


class NotAssigned(GroupError):
    """The partition is not this consumer's at the moment."""

    def __init__(self, place: str, assigned: Sequence[str]) -> None:
        self.place = place
        self.assigned = tuple(assigned)
        super().__init__(
            f"consumer: {place} is not assigned to this consumer\n"
            f"  assigned: {', '.join(assigned) or 'nothing yet; poll() once first'}\n"
            "  another member of its group may have it; let that one seek, or stop the group and reset it"
        )


class StartError(GroupError):
    """A place to start reading that cannot be understood."""

    def __init__(self, found: object) -> None:
        self.found = found
        super().__init__(
            f"consumer: cannot start at {found!r}\n"
            "  expected: 'earliest', 'latest', an offset such as 4711, or a time such as '2026-01-31T12:00:00Z'"
        )


class ConsumerOptionError(GroupError):
    """An option that a consumer cannot have."""

    def __init__(self, option: str, expected: str, found: object) -> None:
        self.option = option
        self.expected = expected
        self.found = found
        super().__init__(f"consumer: cannot be made with {option} = {found!r}\n  expected: {expected}")


class ConsumerClosed(GroupError):
    """The consumer was closed before."""

    def __init__(self, topics: Sequence[str]) -> None:
        self.topics = tuple(topics)
        super().__init__(
            f"consumer: the consumer of {', '.join(map(repr, topics))} is closed\n  make a new one to read on"
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


class CommandRefused(PenstockError):
    """A command that would do harm, or cannot be done as it was given. Nothing was done."""

    def __init__(self, what: str, why: str, hint: str) -> None:
        self.what = what
        self.why = why
        self.hint = hint
        super().__init__(f"penstock: {what}\n  {why}\n  {hint}")


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


class SourceError(PenstockError):
    """Something is wrong with a topic as a Spark source."""


class SourceOptionError(SourceError):
    """An option of `format("penstock")` is missing, unknown, or has a value that it cannot have."""

    def __init__(self, option: str, expected: str, found: object = None, hint: str = "") -> None:
        self.option = option
        self.expected = expected
        self.found = found
        what = f"option {option!r} is missing" if found is None else f"option {option!r} cannot be {found!r}"
        super().__init__(f'format("penstock"): {what}\n  expected: {expected}{hint}')


class StreamDataLost(SourceError):
    """Retention removed records before the stream read them. `lost` maps partition to (next offset, first offset)."""

    def __init__(self, topic: str, lost: Mapping[int, tuple[int, int]]) -> None:
        self.topic = topic
        self.lost = dict(lost)
        total = sum(first - expected for expected, first in lost.values())
        places = "".join(
            f"\n  {topic}/{number}: offsets {expected} up to {first}, {first - expected} records"
            for number, (expected, first) in sorted(lost.items())
        )
        super().__init__(
            f"stream of topic {topic!r}: {total} records were removed by retention before they were read{places}\n"
            "  nothing was skipped: the stream stands where it stood\n"
            "  to go on with what is there: option failOnDataLoss=false; to keep more: penstock topic alter "
            f"{topic} --retention-age ..."
        )


class SchemaOutgrown(SourceError):
    """The topic's columns grew while a query was running, and it holds a value that the old ones have no place for."""

    is_retryable = True

    def __init__(self, topic: str, expected: str, found: str, why: str) -> None:
        self.topic = topic
        self.expected = expected
        self.found = found
        super().__init__(
            f"source: topic {topic!r} has grown since the query began, and holds what does not fit: {why}\n"
            f"  the query reads: {expected}\n  the topic has: {found}\n"
            "  start the query again; a stream goes on at its checkpoint"
        )
