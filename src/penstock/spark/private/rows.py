"""A small slice of Arrow rows, handed to Spark the fastest way."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.spark.private.jvm import Catalyst, Java, catalyst

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_ROWS = "_penstock_rows"

BYTES_MAX = 4 << 20
"""More than this goes through a file, as createDataFrame does it: py4j sends bytes as text."""


def from_arrow(spark: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
    """The rows as a frame of exactly this schema, names, types and nullability included.

    Columns are taken by their position and must have the types that `arrow_schema(schema)` says, or be safe to cast.
    They are held in the driver: for slices, not for whole logs. Raises pyarrow.ArrowInvalid where they do not fit.
    """
    if table.nbytes > BYTES_MAX or not schema.fields:
        return spark.createDataFrame(table, schema)
    wanted = arrow_schema(schema)
    if not table.schema.equals(wanted):
        table = table.rename_columns(wanted.names).cast(wanted)
    message = _one_batch(table).serialize().to_pybytes()
    maker = catalyst(spark)
    frame = maker.local_frame(message, schema)
    vars(frame)[_ROWS] = LocalRows(maker, maker.rows_of(frame), table.num_rows)
    return frame


@dataclass(frozen=True)
class LocalRows:
    """Rows in the driver, as Spark has them there."""

    maker: Catalyst
    data: Java
    count: int

    @cached_property
    def partitions(self) -> Java:
        """The same, as plans that are ready take them: made once for all."""
        return self.maker.rows_partitions(self.data)


def local_rows(frame: DataFrame) -> LocalRows | None:
    """The rows of a frame that `from_arrow` made; None for any other."""
    found: LocalRows | None = vars(frame).get(_ROWS)
    return found


@lru_cache(maxsize=1024)
def arrow_schema(schema: StructType) -> pa.Schema:
    """The types that the rows of a frame have in Arrow: timestamps in UTC, microseconds."""
    found: pa.Schema = to_arrow_schema(schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC")
    return found


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    if not table.num_rows:
        return pa.RecordBatch.from_pylist([], schema=table.schema)
    return table.combine_chunks().to_batches()[0]
