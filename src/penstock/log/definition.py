"""What a topic is: its schema, key, clock and promises, as kept in `topic.json`."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.types as types

from penstock.errors import TopicDefinitionError, TopicNameError, did_you_mean
from penstock.events.avro_schema import names_unfit_for_avro
from penstock.events.keys import is_keyable
from penstock.events.schema import check_growth, format_ddl, parse_ddl
from penstock.log.files import read_document, write_document

FILE_NAME = "topic.json"
DEAD_SUFFIX = ".dead"
OWN_COLUMNS = ("_partition", "_offset", "_arrived", "_late")
"""Columns that every record has from the log itself."""

Durability = Literal["disk", "os"]
ValueFormat = Literal["json", "avro"]
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}(\.dead)?")
SEGMENT_BYTES_MIN = 4096
PARTITIONS_MAX = 1024


@dataclass(frozen=True)
class TopicDefinition:
    """The settings of a topic. Durations are whole microseconds on disk and `timedelta` here."""

    name: str
    schemas: tuple[str, ...]
    """One DDL per version; the last is current. Old segments are read with the version they were written in."""
    partitions: int = 1
    """How many ordered parts there are: as many members of a consumer group can work at once."""
    key: tuple[str, ...] = ()
    """Records with equal keys go to one partition. Without a key they go round robin."""
    event_time: str | None = None
    """The timestamp column that says when a thing happened."""
    lateness: timedelta = timedelta(minutes=10)
    """A record that arrives more than this after its event time is late."""
    retention_age: timedelta | None = None
    """Segments whose newest record was appended longer ago are dropped. None: kept for ever."""
    retention_bytes: int | None = None
    """The oldest segments of a partition are dropped while it is larger. None: no limit."""
    compact: bool = False
    """Keep only the newest record of each key: for topics that are tables."""
    durability: Durability = "disk"
    """"disk": acknowledged means on disk. "os": faster, and a power cut may take the last second."""
    segment_bytes: int = 128 << 20
    """A segment is closed, and then sealed to Parquet, when it would grow beyond this."""
    values: ValueFormat = "json"
    """How records are written in Kafka: "json", or "avro" with the schema of `penstock topic schema --avro`.

    It never changes, and a folder keeps Arrow whatever it says; a log that is moved to Kafka heeds it there."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """A topic that is deleted and made again is another topic."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise TopicNameError(self.name)
        self._check_columns()
        self._check_numbers()
        self._check_names()

    @cached_property
    def schema(self) -> pa.Schema:
        """The current schema, without the log's own columns."""
        return parse_ddl(self.schemas[-1])

    @property
    def schema_version(self) -> int:
        return len(self.schemas) - 1

    @property
    def is_dead_letters(self) -> bool:
        return self.name.endswith(DEAD_SUFFIX)

    def schema_of(self, version: int) -> pa.Schema:
        return self.schema if version == self.schema_version else parse_ddl(self.schemas[version])

    def grown(self, ddl: str) -> TopicDefinition:
        """The same topic with a further schema version. SchemaRefused if old records could not be read with it."""
        schema = parse_ddl(ddl)
        if schema.equals(self.schema):
            return self
        check_growth(self.schema, schema)
        return replace(self, schemas=(*self.schemas, format_ddl(schema)))

    def _check_columns(self) -> None:
        names = self.schema.names
        for name in self.key:
            if name not in names:
                self._refuse_column("key", name)
            if not is_keyable(self.schema.field(name).type):
                found = f"{name} ({self.schema.field(name).type})"
                raise TopicDefinitionError(self.name, "key", "columns with plain values", found)
        if self.event_time is not None:
            if self.event_time not in names:
                self._refuse_column("event_time", self.event_time)
            kind = self.schema.field(self.event_time).type
            if not types.is_timestamp(kind):
                raise TopicDefinitionError(self.name, "event_time", "a timestamp column", f"{self.event_time} ({kind})")

    def _refuse_column(self, setting: str, name: str) -> None:
        names = self.schema.names
        raise TopicDefinitionError(
            self.name, setting, f"one of its columns: {', '.join(names)}", repr(name), did_you_mean(name, names)
        )

    def _check_numbers(self) -> None:
        for setting, is_fine, expected in (
            ("partitions", 1 <= self.partitions <= PARTITIONS_MAX, f"1 to {PARTITIONS_MAX}"),
            ("segment_bytes", self.segment_bytes >= SEGMENT_BYTES_MIN, f"at least {SEGMENT_BYTES_MIN}"),
            ("lateness", self.lateness >= timedelta(0), "zero or more"),
            ("retention_age", self.retention_age is None or self.retention_age > timedelta(0), "more than zero"),
            ("retention_bytes", self.retention_bytes is None or self.retention_bytes > 0, "more than zero"),
            ("durability", self.durability in ("disk", "os"), '"disk" or "os"'),
            ("values", self.values in ("json", "avro"), '"json" or "avro"'),
            ("compact", not self.compact or bool(self.key), "a key to compact by"),
        ):
            if not is_fine:
                raise TopicDefinitionError(self.name, setting, expected, repr(getattr(self, setting)))

    def _check_names(self) -> None:
        unfit = next(names_unfit_for_avro(self.schema), None) if self.values == "avro" else None
        if unfit is not None:
            raise TopicDefinitionError(
                self.name, "values", "names of columns as Avro has them: letters, digits and _, no digit first",
                f"'avro' with the column {unfit!r}", '\n  name the column otherwise, or leave it at values="json"',
            )  # fmt: skip


def as_key(key: str | Sequence[str] | None) -> tuple[str, ...]:
    """A key as users write it: one name, several, or none."""
    return () if key is None else (key,) if isinstance(key, str) else tuple(key)


def to_document(definition: TopicDefinition) -> dict[str, Any]:
    """The definition as JSON can hold it."""
    document = asdict(definition)
    for name in ("lateness", "retention_age"):
        document[name] = None if document[name] is None else document[name] // timedelta(microseconds=1)
    return document


def from_document(document: Mapping[str, Any]) -> TopicDefinition:
    """What `to_document` made."""
    found = dict(document)
    for name in ("lateness", "retention_age"):
        found[name] = None if found[name] is None else timedelta(microseconds=found[name])
    return TopicDefinition(**{**found, "schemas": tuple(found["schemas"]), "key": tuple(found["key"])})


def write_definition(directory: Path, definition: TopicDefinition) -> None:
    """Replaces the definition of a topic, durably."""
    write_document(directory / FILE_NAME, to_document(definition))


def read_definition(directory: Path) -> TopicDefinition:
    """FileNotFoundError if there is no such topic, CorruptionError if its file is damaged."""
    return from_document(read_document(directory / FILE_NAME))
