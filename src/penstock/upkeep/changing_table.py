"""A topic of changes, read as a table: the latest row of each key.

The topic is either a view's changelog (`penstock.upkeep.changelog`: before, after, operation), or has plain rows, of
which the latest for a key counts. Inside, such a table is a row-wise view with a key.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from penstock.errors import DefinitionError
from penstock.events.schema import parse_ddl
from penstock.log.definition import OWN_COLUMNS
from penstock.pipeline.definition import TableSpec, ViewSpec, bound_name
from penstock.pipeline.pipeline import Pipeline
from penstock.upkeep.fold_rows import DELETED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def is_changelog(columns: Collection[str]) -> bool:
    """Whether a topic of these columns has changes of a view, and not plain rows."""
    return {"operation", "before", "after"} <= {*columns}


def as_view(table: TableSpec, pipeline: Pipeline) -> ViewSpec:
    """The view that is this table. DefinitionError if its topic does not keep the changes of a row in order."""
    assert table.topic is not None
    topic = pipeline.topics[table.topic]
    has_changes = is_changelog(parse_ddl(topic.ddl).names)
    partitions = topic.options.get("partitions", 1)
    if has_changes and partitions > 1 and not topic.key:
        raise DefinitionError(
            f"table {table.name!r}",
            table.place,
            "topic",
            "a topic of changes with a key or with one partition, so that all changes of a row are in one partition",
            f"{topic.name!r}, which has {partitions} partitions and no key",
            "a deleted row would come back if the record before its deletion is read in a later step; "
            'give the topic a key, such as key="key", which a changelog has',
        )

    def latest(changes: DataFrame) -> DataFrame:
        from pyspark.sql import functions as sf

        if not has_changes:
            return changes.drop(*OWN_COLUMNS)
        row = sf.coalesce(sf.col("after"), sf.col("before")).alias("row")
        return changes.select(row, (sf.col("operation") == "delete").alias(DELETED)).select("row.*", DELETED)

    return ViewSpec(
        name=table.name,
        inputs=(bound_name(table.topic),),
        key=table.key,
        merge={},
        within={},
        late="correct",
        kept=None,
        horizon=None,
        trigger=None,
        changelog=None,
        function=lambda **frames: latest(next(iter(frames.values()))),
        sql=None,
        place=table.place,
    )


def is_table(spec: ViewSpec) -> bool:
    """Whether a view is such a table."""
    return spec.function is not None and spec.function.__module__ == __name__
