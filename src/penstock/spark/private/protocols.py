"""The two ways into private parts of Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.spark.private.prepared import Asked


class PlanAnalysis(Protocol):
    """What is in the analyzed plan of a frame: what the user's function said, and nothing about how to run it."""

    def json(self, frame: DataFrame) -> str:
        """The plan as Spark writes it."""
        ...

    def text(self, frame: DataFrame) -> str:
        """The plan as Spark prints it, with nothing cut short."""
        ...

    def nondeterministic(self, frame: DataFrame) -> Iterator[str]:
        """The functions that Spark itself does not call deterministic."""
        ...

    def collated_keys(self, frame: DataFrame) -> Iterator[str]:
        """The grouping keys, as SQL, of which different values can be equal. Each once."""
        ...

    def python_functions(self, frame: DataFrame) -> Iterator[tuple[bytes, Mapping[int, str]]]:
        """The pickled Python functions, in the order of the plan; and the files of what they broadcast, by its id."""
        ...

    def marks(self, frame: DataFrame) -> list[str | None]:
        """For each leaf, also of subqueries, which stand-in it is; None for any other leaf."""
        ...

    def nulls(self, spark: SparkSession, schema: StructType) -> Mapping[str, str]:
        """For each column of a schema NULL of its type, as SQL."""
        ...


class SmallPlans(Protocol):
    """Computes plans over a few rows right here, one thread's in a row, until it is ended."""

    def compute(self, asked: Sequence[Asked]) -> list[pa.Table | None]:
        """The rows of each; None where that cannot be, or fails: Spark's scheduler then says how."""
        ...

    def end(self) -> None:
        """Gives back what it took. What comes after it begins anew."""
        ...
