"""An empty frame that stands for a topic, a view or a table while a view's function is looked at.

A function is called once with stand-ins. The plan it builds is read to find out how the view can be kept, and each
step runs that same plan with the stand-ins replaced by rows (`prepared`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.spark.private.jvm import analyzed, catalyst

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def stand_in(spark: SparkSession, schema: StructType) -> DataFrame:
    """An empty frame with attribute ids of its own, so that its leaf is found again in every plan built on it.

    Spark copies a leaf under new ids where a plan joins it with itself; `mark_of` is the same for all copies.
    In the plan as JSON it is the qualifier of each attribute of the leaf.
    """
    maker = catalyst(spark)
    return maker.checked_frame(maker.marked_leaf(schema))


def mark_of(frame: DataFrame) -> str:
    """By what the leaves of this stand-in are known: the first part of their attributes' qualifier."""
    mark = catalyst(frame.sparkSession).mark_of(analyzed(frame))
    assert mark is not None, f"not a stand-in: {analyzed(frame)}"
    return mark
