"""Which records of the log made a row of a view, or which rows of another view did. Reads only; needs no ownership.

A row-wise view remembers the record of each row. Of a view with an aggregation, the plan below it is run over the log
with the place of each record carried along, and what falls into the row's group is listed. Where a view is redone by
window or group, it is that window's or group's records. Anything else is told as far as it goes, with a note.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType, StructField, StructType

from penstock.errors import KeyValueError, NoSuchRow, OffsetOutOfRange
from penstock.log.log import Log
from penstock.spark.columns import column
from penstock.spark.private import surgery
from penstock.spark.private.prepared import Prepared
from penstock.spark.private.rows import arrow_schema, from_arrow
from penstock.upkeep.aside import buried
from penstock.upkeep.commit import dead_topic
from penstock.upkeep.compiled import CompiledView
from penstock.upkeep.fold_rows import ORDER, FoldRows
from penstock.upkeep.inputs import TopicInput, ViewInput
from penstock.upkeep.places import RecordPlace, packed, parse_place, unpacked
from penstock.upkeep.slices import Slice, filtered
from penstock.upkeep.step import Step
from penstock.views.catalog import Generation
from penstock.views.find import KEY, NULL, StoredView, conditions, find_rows
from penstock.views.store import In, Snapshot

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PLACE = ("_partition", "_offset", "_arrived")
NEAR = 5
"""So many other keys are named where one is not there."""


@dataclass(frozen=True)
class Record:
    """One record of the log behind a row."""

    topic: str
    partition: int
    offset: int
    arrived: datetime | None
    """None, like the rest, where retention has removed it since."""
    event_time: datetime | None
    late_by: timedelta | None
    """How long after its event time it arrived, if that was late; None if it was not."""
    values: Mapping[str, Any] | None


@dataclass(frozen=True)
class UpstreamRow:
    """One row of another view behind a row."""

    view: str
    key: Mapping[str, Any]
    record: RecordPlace | None = None
    """The record it comes from, by which it goes if its view has no key."""

    @property
    def words(self) -> list[str]:
        """What names this row in a command."""
        return [shlex.quote(str(self.record))] if self.record is not None else key_words(self.key)


@dataclass(frozen=True)
class Explanation:
    """Where a row comes from."""

    view: str
    row: Mapping[str, Any]
    how: str
    """In what way these were found to be the ones."""
    records: tuple[Record, ...] = ()
    records_total: int = 0
    upstream: tuple[UpstreamRow, ...] = ()
    upstream_total: int = 0
    notes: tuple[str, ...] = field(default=())
    """What else one must know, such as what could not be followed."""


@dataclass(frozen=True)
class Explainer:
    """Explains rows of one view, as of the fence of the generation that holds them."""

    view: CompiledView
    generation: Generation
    snapshot: Snapshot
    log: Log
    spark: SparkSession
    limit: int = 50
    """At most so many records or rows are listed; all are counted."""

    def explain(self, row: Mapping[str, Any], key: bytes) -> Explanation:
        """Where the row with these visible columns and this stored key comes from."""
        if isinstance(self.view.keeper, FoldRows):
            place = self._stored_place(key)
            how = "the latest one of its key" if self.view.keeper.has_key else "each of its rows is made of one"
            return Explanation(self.view.name, row, how, (self._record(place),), 1)
        found = Explanation(self.view.name, row, "")
        for name, each in self.view.inputs.items():
            part = self._topic(each, row) if isinstance(each, TopicInput) else self._upstream(name, each, row)
            found = replace(
                found,
                how="; ".join(dict.fromkeys(filter(None, [found.how, part.how]))),
                records=(*found.records, *part.records),
                records_total=found.records_total + part.records_total,
                upstream=(*found.upstream, *part.upstream),
                upstream_total=found.upstream_total + part.upstream_total,
                notes=(*found.notes, *part.notes),
            )
        return found

    def groups(self, each: TopicInput) -> DataFrame:
        """Which of the view's groups each record of a topic falls into: `group`, a number, and the record's place.

        A record may fall into several. Where groups cannot be told, all records are of one.
        """
        carried = {column: surgery.carried_name(column) for column in PLACE[:2]}
        key = self.view.spec.key or ()
        for found, _ in self._ways(each.name, PLACE[:2]):
            if key and all(name in found.columns for name in key):
                hashed = sf.xxhash64(*(column(name) for name in key))
                return found.select(hashed.alias("group"), *carried.values())
        frame, redo = self._frames()[each.name], self.view.keeping.redo
        group = sf.lit(0)
        if redo is not None and redo.groups.get(each.name):
            group = sf.xxhash64(*map(sf.expr, redo.groups[each.name]))
        elif redo is not None and redo.window_us is not None and each.name in redo.times:
            _, slide, offset = redo.window_us
            group = sf.floor((sf.unix_micros(column(redo.times[each.name])) - offset) / slide)
        return frame.select(group.alias("group"), *(sf.col(name).alias(hidden) for name, hidden in carried.items()))

    # --- row-wise views ---

    def _stored_place(self, key: bytes) -> RecordPlace:
        keeper, topics = self.view.keeper, self.view.topics
        assert isinstance(keeper, FoldRows)
        if not keeper.has_key:
            return unpacked(key, topics)
        table = self.view.shape.table(self.generation.layers)
        stored = self.snapshot.read(table, In(KEY, pa.array([key], pa.binary(16))), ORDER.names)
        [order] = stored.to_pylist()
        return RecordPlace(topics[order["_order_topic"]], order["_order_partition"], order["_order_offset"])

    # --- records of topics ---

    def _topic(self, each: TopicInput, row: Mapping[str, Any]) -> Explanation:
        frame, how = self._followed(each.name, row, PLACE)
        notes = [self._note_of_removed(each)]
        if frame is None:
            read = sum(self.generation.fence.offsets.get(each.topic, {}).values())
            note = f"its records cannot be told apart: it is computed from all {read:,} of topic {each.topic!r}"
            return Explanation(self.view.name, row, how, notes=(note, *filter(None, notes)))
        partition, offset, arrived = map(surgery.carried_name, PLACE)
        places = frame.select(partition, offset, arrived).distinct()
        counted = places.agg(sf.count("*").alias("records"))
        shown = places.orderBy(arrived, partition, offset).limit(self.limit)
        counts, found = counted.toArrow(), shown.toArrow()
        records = [
            self._record(RecordPlace(each.topic, place[partition], place[offset])) for place in found.to_pylist()
        ]
        return Explanation(
            self.view.name,
            row,
            how,
            tuple(records),
            int(counts.column("records")[0].as_py()),
            notes=tuple(filter(None, notes)),
        )

    def _record(self, place: RecordPlace) -> Record:
        topic = self.log.topic(place.topic)
        try:
            rows = topic.slice({place.partition: place.offset}, {place.partition: place.offset + 1}).to_pylist()
        except OffsetOutOfRange:
            rows = []
        if not rows:
            return Record(place.topic, place.partition, place.offset, None, None, None, None)
        [row] = rows
        values = {name: value for name, value in row.items() if name in topic.schema.names}
        event_time = values.get(topic.definition.event_time or "")
        late_by = None
        if row["_late"] and event_time is not None:
            late_by = row["_arrived"] - event_time.replace(tzinfo=event_time.tzinfo or row["_arrived"].tzinfo)
        return Record(place.topic, place.partition, place.offset, row["_arrived"], event_time, late_by, values)

    def _note_of_removed(self, each: TopicInput) -> str | None:
        gone = sum(self.log.topic(each.topic).start().values())
        told = f"retention has removed {gone:,} records of topic {each.topic!r}, which may be behind it too"
        return told if gone else None

    # --- rows of views ---

    def _upstream(self, name: str, each: ViewInput, row: Mapping[str, Any]) -> Explanation:
        known = self.generation.views[name]
        columns = each.shape.key if known.key is not None else each.needed
        frame, how = self._followed(name, row, columns)
        has_maps = any("map<" in each.schema[one].dataType.simpleString() for one in columns)
        if frame is None or (known.key is None and has_maps):  # Spark does not compare maps.
            note = f"its rows cannot be told apart: it is computed from all of view {name!r}"
            return Explanation(self.view.name, row, how, notes=(note,))
        if known.key is None:
            places, count = self._places_of(each, frame, known.details.get("topics", ()))
            rows = [UpstreamRow(name, {}, place) for place in places]
            return Explanation(self.view.name, row, how, upstream=tuple(rows), upstream_total=count)
        carried = [surgery.carried_name(each) for each in columns]
        if not columns:
            return Explanation(self.view.name, row, how, upstream=(UpstreamRow(name, {}),), upstream_total=1)
        keys = frame.select(*(column(each) for each in carried)).distinct()
        counted = keys.agg(sf.count("*").alias("rows"))
        shown = keys.orderBy(*(column(each) for each in carried)).limit(self.limit)
        counts, found = counted.toArrow(), shown.toArrow()
        rows = [
            UpstreamRow(name, {each: key[hidden] for each, hidden in zip(columns, carried, strict=True)})
            for key in found.to_pylist()
        ]
        return Explanation(
            self.view.name, row, how, upstream=tuple(rows), upstream_total=int(counts.column("rows")[0].as_py())
        )

    def _places_of(self, each: ViewInput, frame: DataFrame, topics: Sequence[str]) -> tuple[list[RecordPlace], int]:
        """The records of the rows of a view without a key that are among those of the frame, and how many there are.

        A plan cannot carry what it never saw, so they are found by their content: rows that are alike are all meant.
        """
        stored = self.snapshot.read(each.shape.table(self.generation.layers), columns=[KEY, *each.needed])
        kinds = StructType([StructField(KEY, BinaryType()), *(each.schema[name] for name in each.needed)])
        rows = from_arrow(self.spark, stored.cast(arrow_schema(kinds)), kinds)
        same = [rows[column(name)].eqNullSafe(frame[column(surgery.carried_name(name))]) for name in each.needed]
        same = same or [sf.expr("true")]
        keys = rows.join(frame, same, "left_semi").select(KEY)
        found = keys.orderBy(KEY).limit(self.limit).toArrow().column(KEY).to_pylist()
        return [unpacked(key, topics) for key in found], keys.count()

    # --- following a plan ---

    def _followed(self, name: str, row: Mapping[str, Any], columns: Sequence[str]) -> tuple[DataFrame | None, str]:
        """The rows of one input behind the row, with `columns` of it carried along; and how they were found."""
        for found, how in self._ways(name, columns):
            wanted = self.view.spec.key or ()
            if all(each in found.columns for each in wanted):
                return self._filtered(found, {each: row[each] for each in wanted}), how
        return self._of_group(name, row, columns)

    def _ways(self, name: str, columns: Sequence[str]) -> Iterator[tuple[DataFrame, str]]:
        """Frames with the view's key and the carried columns of one input, the closest to the truth first."""
        only = {name: self.view.stand_ins[name]}
        ways: dict[str, Callable[[], list[DataFrame]]] = {
            "each of its rows is made of one": lambda: [surgery.carry(self.view.frame, only, columns)],
            "they fall into its group": lambda: surgery.carry_below(self.view.frame, only, columns),
        }
        for how, carry in ways.items():
            try:
                carried, frames = carry(), self._frames()
                parts = [Prepared(each, self.view.stand_ins, _unswappable).over(frames) for each in carried]
            except (surgery.NotRowwise, surgery.NotOneAggregate, _CannotFollow):
                continue
            for part in parts:  # Of a union, rows of the other sides carry nothing.
                yield part.filter(part[surgery.CARRIED_TOPIC].isNotNull()), how

    def _of_group(self, name: str, row: Mapping[str, Any], columns: Sequence[str]) -> tuple[DataFrame | None, str]:
        """The rows of one input in the row's window or group, where the view is redone by such."""
        frame = self._frames()[name]
        redo = self.view.keeping.redo
        carried = [sf.col(column(each)).alias(surgery.carried_name(each)) for each in columns]
        if redo is not None and redo.by == "window" and redo.window is not None and name in redo.times:
            start, end = self._window(row[redo.window])
            time = sf.col(column(redo.times[name]))
            inside = frame.filter((time >= sf.lit(start)) & (time < sf.lit(end)))
            return inside.select(*carried), "they fall into its window"
        if redo is not None and redo.output is not None and name in redo.groups:
            pairs = zip(redo.groups[name], redo.output, strict=True)
            named = {f"group {number}": pair for number, pair in enumerate(pairs)}
            grouped = frame.select(*carried, *(sf.expr(text).alias(alias) for alias, (text, _) in named.items()))
            columns_of = {alias: each for alias, (_, each) in named.items()}
            wanted = {alias: row[each] for alias, each in columns_of.items()}
            return self._filtered(grouped, wanted, columns_of), "they are of its group"
        shared = [each for each in self.view.spec.key or () if each in frame.columns]
        if shared and len(shared) == len(self.view.spec.key or ()):
            alike = frame.select(*carried, *(column(each) for each in shared))
            return self._filtered(alike, {each: row[each] for each in shared}), "they have the same key columns"
        return None, ""

    def _window(self, value: Any) -> tuple[datetime, datetime]:
        redo = self.view.keeping.redo
        assert redo is not None
        if isinstance(value, dict):
            return value["start"], value["end"]
        assert redo.window_us is not None
        return value, value + timedelta(microseconds=redo.window_us[0])

    def _filtered(
        self, frame: DataFrame, values: Mapping[str, Any], columns: Mapping[str, str] | None = None
    ) -> DataFrame:
        """The rows whose columns have these values; NULL equals NULL. `columns` names the view's column of each."""
        if not values:
            return frame
        named = columns or {name: name for name in values}
        schema = self.view.schema
        kinds = StructType([StructField(f"wanted {name}", schema[named[name]].dataType) for name in values])
        table = pa.Table.from_pylist([{f"wanted {name}": value for name, value in values.items()}], arrow_schema(kinds))
        wanted = from_arrow(self.spark, table, kinds)
        same: list[Column] = [frame[column(name)].eqNullSafe(wanted[column(f"wanted {name}")]) for name in values]
        return frame.join(sf.broadcast(wanted), same, "left_semi")

    def _frames(self) -> dict[str, DataFrame]:
        """All inputs up to the fence."""
        offsets = self.generation.fence.offsets
        slices = {}
        for name in self.view.topics:
            topic = self.log.topic(name)
            stop = {number: offsets.get(name, {}).get(number, 0) for number in topic.end()}
            slices[name] = Slice(topic, topic.start(), stop)
        step = Step(self.spark, self.snapshot, self.generation.layers, slices)
        aside = buried(self.log, dead_topic(self.generation.pipeline, self.view.name))
        return {
            name: filtered(each.everything(step), aside.get(each.topic, frozenset()))
            if isinstance(each, TopicInput)
            else each.frame(step, self.snapshot.read(each.shape.table(self.generation.layers)))
            for name, each in self.view.inputs.items()
        }


class _CannotFollow(Exception):
    """A plan whose inputs cannot be replaced."""


def _unswappable(frames: Mapping[str, DataFrame]) -> DataFrame:  # noqa: ARG001
    raise _CannotFollow


def asked_row(snapshot: Snapshot, view: StoredView, texts: Sequence[str]) -> tuple[dict[str, Any], bytes]:
    """The one row that people mean: its visible columns, and its stored key.

    `texts` are values of its key; a part will do if only one row has it. A row without a key goes by its record, such
    as `orders/0@17`. NoSuchRow names some that are near; KeyValueError.
    """
    if view.known.key is None:
        rows = _row_of_record(snapshot, view, texts)
    else:
        wanted = conditions(view, texts)
        rows = find_rows(snapshot, view, wanted, limit=2)
    named = " ".join(texts) or "without a key"
    if rows.num_rows > 1:
        near = [key_text(view, row) for row in find_rows(snapshot, view, wanted, limit=NEAR).to_pylist()]
        raise KeyValueError(view.name, view.known.key or (), named, f"several rows have it: {'; '.join(near)}")
    if rows.num_rows == 0:
        raise NoSuchRow(view.name, named, _near(snapshot, view, texts), view.rows)
    [row] = rows.to_pylist()
    return {name: row[name] for name in view.known.schema.names}, row[KEY]


def _row_of_record(snapshot: Snapshot, view: StoredView, texts: Sequence[str]) -> pa.Table:
    place = parse_place(texts[0]) if len(texts) == 1 else None
    topics = view.known.details.get("topics", ())
    if place is None or place.topic not in topics:
        found = f"its rows have no key and go by their record, such as {next(iter(topics), 'topic')}/0@17"
        raise KeyValueError(view.name, (), " ".join(texts), found)
    return snapshot.read(view.table, In(KEY, pa.array([packed(place, topics)], pa.binary(16))))


def _near(snapshot: Snapshot, view: StoredView, texts: Sequence[str]) -> list[str]:
    """Keys that agree with as much as possible of what was asked for, from its beginning."""
    if view.known.key is None:
        return []
    for count in range(len(texts) - 1, -1, -1):
        rows = find_rows(snapshot, view, conditions(view, texts[:count]), limit=NEAR)
        if rows.num_rows:
            return [key_text(view, row) for row in rows.to_pylist()]
    return []


def key_text(view: StoredView, row: Mapping[str, Any]) -> str:
    """A key as it is written in a command."""
    return " ".join(key_words({name: row[name] for name in view.known.key or ()}))


def key_words(key: Mapping[str, Any]) -> list[str]:
    """The values of a key as words of a command: COLUMN=VALUE where a value would be taken for an option or a name."""
    words = []
    for name, value in key.items():
        text = value_text(value)
        is_taken = text.startswith("-") or (isinstance(value, str) and value.partition("=")[0] in key)
        words.append(shlex.quote(f"{name}={text}" if is_taken else text))
    return words


def value_text(value: Any) -> str:
    """A value of a key as `conditions` reads it."""
    if value is None:
        return NULL
    if isinstance(value, Mapping) and set(value) == {"start", "end"}:
        return f"{value_text(value['start'])}..{value_text(value['end'])}"
    if hasattr(value, "isoformat"):
        return str(value.isoformat()).replace("+00:00", "Z")
    if isinstance(value, Mapping | list):
        return json.dumps(value, default=str)
    return value.hex() if isinstance(value, bytes) else str(value)
