"""Every view as plain Spark computes it: the user's function over whole inputs, with nothing of Penstock's engine.

All runs of the engine may agree with each other and be wrong together. This one shares with them the log and what is
defined, and nothing of how a view is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException

from penstock.log.topic import Topic
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.tables import read_table
from penstock.upkeep.aside import failed_records, is_data_error, places_of, why_not
from penstock.upkeep.changing_table import is_changelog
from penstock.upkeep.compiled import CompiledView
from penstock.upkeep.fold_rows import FoldRows
from penstock.upkeep.inputs import TopicInput
from penstock.upkeep.slices import Place, Slice, filtered
from penstock.upkeep.states import finished
from penstock.upkeep.step import Reader, Step, finish
from penstock.verify.cuts import Cut
from penstock.views.keys import key_hashes
from penstock.views.values import one_array

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NOTHING = cast("Reader", None)
"""What is stored, where no plan asks for it."""


class PlainSpark:
    """Computes views one after the other; those that others are made of first."""

    def __init__(self, pipeline: Pipeline, topics: Mapping[str, Topic], end: Cut, spark: SparkSession) -> None:
        self._pipeline = pipeline
        self._topics = topics
        self._end = end
        self._spark = spark
        self._frames: dict[str, DataFrame] = {}
        """Rows of the views so far, by name."""

    def rows(self, view: CompiledView, batch: pa.Table) -> pa.Table:
        """What the view's readers should see, with the columns of `batch`, which is what the engine computed.

        In a row-wise view with a key the row of the latest record wins. A plan does not say which record a row comes
        from, so of several rows with one key that of `batch` is taken, if it is one of them.
        """
        if view.name in self._pipeline.tables:
            found = finished(self._latest_changes(view).toArrow())
        else:
            found = finished(self._computed(view))
        columns = view.shape.columns
        found = found.select(columns.names).cast(columns)
        if isinstance(view.keeper, FoldRows) and view.keeper.has_key:
            found = _one_for_each_key(found, batch, view.shape.key)
        self._frames[view.name] = self._spark.createDataFrame(found, view.schema)
        return found

    def _computed(self, view: CompiledView) -> pa.Table:
        """What the view's function gives, without the records on which it fails, each alone."""
        try:
            return view.spec.build(self._inputs(view, {})).toArrow()
        except PySparkException as error:
            if not is_data_error(error) or why_not(view) is not None:
                raise
            slices = {
                name: Slice(self._topics[name], self._topics[name].start(), self._end[name]) for name in view.topics
            }
            step = Step(self._spark, _NOTHING, (0,), slices)
            failed = finish(failed_records(view, step))
            if not failed:
                raise
        return view.spec.build(self._inputs(view, places_of(failed))).toArrow()

    def _inputs(self, view: CompiledView, without: Mapping[str, frozenset[Place]]) -> dict[str, DataFrame]:
        found = {}
        for name in view.spec.inputs:
            found[name] = self._input(view, name)
            known = view.inputs.get(name)
            if isinstance(known, TopicInput):
                found[name] = filtered(found[name], without.get(known.topic, frozenset()))
        return found

    def _input(self, view: CompiledView, name: str) -> DataFrame:
        known = view.inputs.get(name)
        if known is None:
            return read_table(self._pipeline.tables[name], self._spark)
        if not isinstance(known, TopicInput):
            return self._frames[known.name]
        frame = self._topic(known.topic)
        return frame if known.late == "correct" else frame.filter("NOT _late")

    def _topic(self, name: str) -> DataFrame:
        return self._topics[name].read(self._spark, until=self._end[name])

    def _latest_changes(self, view: CompiledView) -> DataFrame:
        """A topic of changes as a table: the latest row of each key, unless that deletes it."""
        from pyspark.sql import Window
        from pyspark.sql import functions as sf

        topic = str(self._pipeline.tables[view.name].topic)
        rows = self._topic(topic)
        place = ["_arrived", "_partition", "_offset"]
        if is_changelog(self._topics[topic].schema.names):
            row = sf.coalesce("after", "before").alias("row")
            rows = rows.select(row, (sf.col("operation") == "delete").alias("_deleted"), *place)
            rows = rows.select("row.*", "_deleted", *place)
        else:
            rows = rows.withColumn("_deleted", sf.lit(False))
        newest = Window.partitionBy(*view.shape.key).orderBy(*(sf.desc(each) for each in place))
        return rows.withColumn("_rank", sf.row_number().over(newest)).filter("_rank = 1 AND NOT _deleted")


def _one_for_each_key(rows: pa.Table, batch: pa.Table, key: tuple[str, ...] | list[str]) -> pa.Table:
    """Of rows with the same key that of the batch, or any if the batch has none of them."""
    names = rows.schema.names
    keys, whole = key_hashes(rows, key), key_hashes(rows, names, remembers=False)
    is_chosen = pc.is_in(whole, value_set=key_hashes(batch.select(names), names, remembers=False))
    ordered = pa.table(
        {"key": keys, "other": pc.invert(is_chosen), "place": pa.array(range(rows.num_rows), pa.int64())}
    )
    first = ordered.sort_by([("key", "ascending"), ("other", "ascending"), ("place", "ascending")])
    places = first.group_by("key", use_threads=False).aggregate([("place", "first")]).column("place_first")
    return rows.take(one_array(places))
