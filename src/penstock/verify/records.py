"""Which records of the log touched a row that differs, as `explain-row` finds them, in the database of the batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.modes.engine import Engine
from penstock.spark.private.rows import arrow_schema, from_arrow
from penstock.upkeep.compare import Example
from penstock.upkeep.compiled import CompiledView
from penstock.upkeep.explain import Explainer, Explanation
from penstock.upkeep.inputs import TopicInput
from penstock.views.store import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS_MAX = 10
"""So many are shown of one row; how many there are is always said."""
GROUPS_MAX = 3


@dataclass(frozen=True)
class Tracer:
    """Follows rows of the views back to the log."""

    engine: Engine
    snapshot: Snapshot

    @staticmethod
    @contextmanager
    def over(engine: Engine) -> Iterator[Tracer]:
        """Over the views that an engine has computed."""
        with engine.store.snapshot() as snapshot:
            yield Tracer(engine, snapshot)

    def explain(self, view: CompiledView, example: Example) -> Explanation | None:
        """Where the row comes from, as far as that can be told. An extra row is looked for by its key alone."""
        generation = self.engine.live(self.engine.set_of(view.name))
        row = example.expected if example.expected is not None else example.found
        if generation is None or row is None:
            return None
        explainer = Explainer(view, generation, self.snapshot, self.engine.log, self.engine.spark, RECORDS_MAX)
        try:
            return explainer.explain(row, example.place)
        except (PenstockError, ValueError):  # A row that the batch does not have may have no place in its database.
            return None


def met(view: CompiledView, example: Example, explained: Explanation | None, spark: SparkSession) -> str:
    """The groups of `within=` whose rows met in one row of the view; empty where that cannot be told."""
    if explained is None or view.keeping.redo is None:
        return ""
    found: dict[str, None] = {}
    for each in view.inputs.values():
        expressions = view.keeping.redo.groups.get(each.name, ())
        if isinstance(each, TopicInput) and expressions:
            values = [record.values for record in explained.records if record.topic == each.topic and record.values]
            found.update(dict.fromkeys(_groups(each, values, expressions, spark)))
    if len(found) < 2:
        return ""
    return f"groups meet: rows of {' and '.join(found)} made the row {_named(list(example.key), example.key.values())}"


def _groups(each: TopicInput, values: Sequence[Any], expressions: Sequence[str], spark: SparkSession) -> list[str]:
    rows = pa.Table.from_pylist([dict(row) for row in values], schema=arrow_schema(each.schema))
    found = from_arrow(spark, rows, each.schema).selectExpr(*expressions).distinct().limit(GROUPS_MAX).collect()
    return [_named(expressions, group) for group in found]


def _named(names: Sequence[str], values: Any) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in zip(names, values, strict=True))
