"""The options of `format("penstock")`, read and checked in one place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.consume.start import parse_start
from penstock.errors import SourceOptionError, StartError, did_you_mean
from penstock.log.hours import TimeRange
from penstock.log.log import Log
from penstock.log.partition import Offsets
from penstock.spark.time_ranges import time_ranges

if TYPE_CHECKING:
    from penstock.log.topic import Topic

KNOWN = (
    "log", "topic", "columns", "startingOffsets", "endingOffsets", "arrived", "eventTime",
    "maxRowsPerTrigger", "maxBytesPerTrigger", "failOnDataLoss",
)  # fmt: skip
KAFKA = "kafka."
"""Options of this prefix are settings of librdkafka."""
_PLACES = 'earliest, latest, an offset, a time such as 2026-01-31T12:00:00Z, or {"0": 12, "1": 7} with every partition'


@dataclass(frozen=True)
class SourceOptions:
    """What a reader was asked for. Travels to the workers, so it holds no open files."""

    log: str
    """The address of the log, good in other folders: workers may run elsewhere."""
    topic: str
    conf: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Settings of librdkafka, for a log in Kafka."""
    columns: tuple[str, ...] | None = None
    """Which of the topic's columns to read; None for all."""
    starting: str = "earliest"
    ending: str = "latest"
    arrived: tuple[TimeRange, ...] | None = None
    """Only records that arrived in one of these ranges."""
    event_time: tuple[TimeRange, ...] | None = None
    """Only records whose event time is in one of these ranges."""
    max_rows: int | None = None
    """At most so many records in a micro-batch."""
    max_bytes: int | None = None
    """At most so many bytes in a micro-batch, as they lie in the log."""
    fail_on_data_loss: bool = True
    """Whether a stream stops where retention removed what it had not read yet, or goes on behind it."""

    @staticmethod
    def parse(given: Mapping[str, str]) -> SourceOptions:
        """Reads the options as Spark hands them over. SourceOptionError names what is missing, unknown or wrong."""
        lower = {name.lower(): name for name in KNOWN}
        conf = {name[len(KAFKA) :]: value for name, value in given.items() if name.lower().startswith(KAFKA)}
        given = {name: value for name, value in given.items() if not name.lower().startswith(KAFKA)}
        for name in given:
            if name.lower() not in lower:
                hint = did_you_mean(name, KNOWN)
                raise SourceOptionError(name, f"one of {', '.join(KNOWN)}", given[name], hint)
        found = {lower[name.lower()]: value for name, value in given.items()}
        for name, example in (("log", "dir:/srv/log"), ("topic", "access")):
            if not found.get(name):
                raise SourceOptionError(name, f'.option("{name}", "{example}")')
        return SourceOptions(
            log=_address(found["log"], conf),
            topic=found["topic"],
            conf=tuple(conf.items()),
            columns=_columns(found.get("columns")),
            starting=found.get("startingOffsets", "earliest"),
            ending=found.get("endingOffsets", "latest"),
            arrived=_ranges(found.get("arrived"), "option 'arrived'"),
            event_time=_ranges(found.get("eventTime"), "option 'eventTime'"),
            max_rows=_number(found, "maxRowsPerTrigger"),
            max_bytes=_number(found, "maxBytesPerTrigger"),
            fail_on_data_loss=_is_true(found, "failOnDataLoss", default=True),
        )

    def for_batch(self) -> SourceOptions:
        """The same, after checking that nothing was asked for that only a stream has."""
        for option, value in (("maxRowsPerTrigger", self.max_rows), ("maxBytesPerTrigger", self.max_bytes)):
            if value is not None:
                raise SourceOptionError(option, "only with readStream: a batch is read whole", value)
        return self

    def for_stream(self) -> SourceOptions:
        """The same, after checking that nothing was asked for that a stream cannot have."""
        if self.ending != "latest":
            raise SourceOptionError("endingOffsets", "only with read: a stream has no end", self.ending)
        return self

    def starting_offsets(self, topic: Topic) -> Offsets:
        return _offsets("startingOffsets", self.starting, topic)

    def ending_offsets(self, topic: Topic) -> Offsets:
        return _offsets("endingOffsets", self.ending, topic)


def _address(url: str, conf: Mapping[str, str]) -> str:
    with Log(url, background=False, conf=conf) as log:
        return log.url


def as_options(offsets: Mapping[int, int] | str) -> str:
    """Offsets as an option holds them."""
    if isinstance(offsets, str):
        return offsets
    return json.dumps({str(number): offset for number, offset in offsets.items()})


def _offsets(option: str, text: str, topic: Topic) -> Offsets:
    if not text.lstrip().startswith("{"):
        try:
            place = parse_start(text)
        except StartError:
            raise SourceOptionError(option, _PLACES, text) from None
        return {partition.number: place.offset_in(partition) for partition in topic.partitions}
    try:
        found = {int(number): offset for number, offset in json.loads(text).items()}
    except ValueError:
        raise SourceOptionError(option, _PLACES, text) from None
    if sorted(found) != [*range(len(topic.partitions))] or not all(_is_offset(value) for value in found.values()):
        many = f"; topic {topic.name!r} has {len(topic.partitions)} partitions"
        raise SourceOptionError(option, _PLACES + many, text)
    return found


def _is_offset(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _columns(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    if text.lstrip().startswith("["):
        try:
            names = json.loads(text)
        except ValueError:
            names = None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise SourceOptionError("columns", 'names, such as time,url or ["time", "url"]', text)
        return tuple(names)
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _ranges(text: str | None, what: str) -> tuple[TimeRange, ...] | None:
    found = time_ranges(text, what)
    return None if found is None else tuple(found)


def _number(found: Mapping[str, str], option: str) -> int | None:
    text = found.get(option)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise SourceOptionError(option, "a whole number of at least 1", text)
    return int(text)


def _is_true(found: Mapping[str, str], option: str, *, default: bool) -> bool:
    text = found.get(option)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise SourceOptionError(option, "true or false", text)
    return text.lower() == "true"
