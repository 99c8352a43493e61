"""Which of the rows that a step changes an alert is about: by its condition, then by its function.

An alert never stops a step. One whose condition or function fails is left out of this step, and what went wrong is
written down in the step's transaction, where people are told otherwise.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.alerts.compiled import BEFORE, ROW, CompiledAlert, Condition
from penstock.alerts.telling import failure, prepared
from penstock.pipeline.definition import AlertFunction
from penstock.plans.collect import FrameFailed
from penstock.spark.private.rows import arrow_schema, from_arrow
from penstock.upkeep.changes import KEY, Changes, difference, readable_rows
from penstock.upkeep.merge import align
from penstock.upkeep.step import Work, reason_of
from penstock.views.texts import storable
from penstock.views.values import one_array

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.private.prepared import Asked

TEXT_LENGTH_MAX = 2_000
"""More of a function's text is cut off."""


@dataclass(frozen=True)
class Found:
    """What an alert has to say of one step."""

    alert: CompiledAlert
    rows: pa.Table
    """The rows it is about, as stored: with their keys."""
    texts: Sequence[str | None] = field(default_factory=list)
    """For each row what the function said; None is the usual text."""
    error: str | None = None
    """What went wrong; then there are no rows."""
    records: pa.Table | None = None
    """What topics are told of each row, where there are topics: see `prepared`."""


def look(spark: SparkSession, alerts: Sequence[CompiledAlert], changes: Mapping[str, Changes]) -> Work[list[Found]]:
    """Asks each alert about the changes of its view, and returns what each of them has to say, be it nothing.

    Rows are looked at that are there after the step and look different to people; rows that left are not.
    """
    seen: dict[str, Changes] = {}
    for alert in alerts:
        if alert.spec.view not in seen:
            visible = [KEY, *alert.shape.columns.names]
            given = changes[alert.spec.view]
            seen[alert.spec.view] = difference(given.before.select(visible), given.after.select(visible))
    asking = [each for each in alerts if seen[each.spec.view].after.num_rows]
    chosen = yield from _chosen(spark, asking, seen)
    return [_found(alert, seen[alert.spec.view], picked) for alert, picked in zip(asking, chosen, strict=True)]


def _found(alert: CompiledAlert, changes: Changes, picked: pa.Array | str) -> Found:
    """What an alert says of the rows that its condition is true of. Whatever goes wrong, it never stops the step."""
    nothing = changes.after.slice(0, 0)
    if isinstance(picked, str):
        return Found(alert, nothing, error=storable(picked))
    try:
        return prepared(_judged(alert, changes, changes.after.take(picked)))
    except Exception as error:
        return Found(alert, nothing, error=failure(error))


def _chosen(
    spark: SparkSession, alerts: Sequence[CompiledAlert], seen: Mapping[str, Changes]
) -> Work[list[pa.Array | str]]:
    """For each alert the places of the rows that its condition is true of, or why it could not be asked."""
    chosen: dict[int, pa.Array | str] = {}
    asked: dict[int, Asked] = {}
    frames: dict[tuple[str, ...], DataFrame] = {}
    for place, alert in enumerate(alerts):
        rows = seen[alert.spec.view]
        if alert.condition is None:
            chosen[place] = pa.array(range(rows.after.num_rows), pa.int64())
        else:
            named = (alert.spec.view, *alert.condition.schema.names)
            try:
                if named not in frames:
                    frames[named] = from_arrow(spark, _asked_of(alert.condition, rows), alert.condition.schema)
                asked[place] = alert.condition.prepared.ask({"rows": frames[named]})
            except Exception as error:
                chosen[place] = failure(error)
    while asked:
        places = list(asked)
        try:
            tables = list((yield [asked[place] for place in places]))
        except FrameFailed as failed:
            # One that fails says nothing about the others: they are asked again, without it.
            place = places[failed.index]
            chosen[place] = f"when = {alerts[place].spec.when!r}: {reason_of(failed.__cause__)}"
            del asked[place]
            continue
        chosen |= {place: pc.unique(table.column(ROW)) for place, table in zip(places, tables, strict=True)}
        break
    return [chosen[place] for place in range(len(alerts))]


def _asked_of(condition: Condition, changes: Changes) -> pa.Table:
    """The changed rows in the columns that a condition names."""
    rows = changes.after.num_rows
    columns = []
    for each in arrow_schema(condition.schema):
        if each.name == ROW:
            columns.append(pa.array(range(rows), pa.int64()))
        elif each.name == BEFORE:
            columns.append(_before(changes, each.type))
        else:
            columns.append(one_array(changes.after.column(each.name)).cast(each.type))
    asked = pa.table(columns, schema=arrow_schema(condition.schema))
    # A plan over a single row is not kept for the next step (see `PhysicalPlan`), and steps of one row are common.
    return pa.concat_tables([asked, asked]) if rows == 1 else asked


def _before(changes: Changes, kind: pa.DataType) -> pa.Array:
    """For each row after the step what it was before; NULL for a new one."""
    keys = one_array(changes.after.column(KEY))
    was = pc.is_in(keys, value_set=one_array(changes.before.column(KEY)))
    rows = align(changes.before, keys)
    arrays = [one_array(rows.column(each.name)).cast(each.type) for each in kind]
    return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=pc.invert(was))


def _judged(alert: CompiledAlert, changes: Changes, rows: pa.Table) -> Found:
    """What the function says of the rows; all of them, with the usual text, where there is none."""
    function = alert.spec.function
    if function is None:
        return Found(alert, rows, [None] * rows.num_rows)
    befores: dict[bytes, dict[str, object]] = {}
    if alert.spec.parameters > 1:
        was = changes.before.filter(pc.is_in(changes.before.column(KEY), value_set=one_array(rows.column(KEY))))
        befores = dict(zip(was.column(KEY).to_pylist(), readable_rows(alert.shape.visible(was)), strict=True))
    told: list[int] = []
    texts: list[str | None] = []
    keys = rows.column(KEY).to_pylist()
    for place, row in enumerate(readable_rows(alert.shape.visible(rows))):
        try:
            said = _said(function, [row, befores.get(keys[place])][: alert.spec.parameters])
        except (Exception, SystemExit) as error:
            return Found(alert, rows.slice(0, 0), error=_failure(function, row, error))
        if said is not None:
            told.append(place)
            texts.append(said or None)
    return Found(alert, rows.take(pa.array(told, pa.int64())), texts)


def _said(function: AlertFunction, arguments: Sequence[object]) -> str | None:
    """A text, "" for the usual one, or None where nobody is to be told."""
    said = function(*arguments)
    if not said:
        return None
    if said is True:
        return ""
    if not isinstance(said, str):
        raise TypeError(f"expected: a text, True or nothing; found {said!r:.100}")
    clean = storable(said)
    return clean if len(clean) <= TEXT_LENGTH_MAX else clean[:TEXT_LENGTH_MAX] + "..."


def _failure(function: AlertFunction, row: Mapping[str, object], error: BaseException) -> str:
    """What went wrong in the user's function, where, and of which row."""
    code = getattr(function, "__code__", None)
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if code is not None and each.filename == code.co_filename]
    return f"{failure(error, f' in line {own[-1].lineno}' if own else '')}; the row: {row!r:.300}"
