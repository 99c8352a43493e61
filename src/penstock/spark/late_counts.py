"""How many records came late, counted by whoever reads them anyway: a log in Kafka cannot tell without reading."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from pyspark.accumulators import Accumulator, AccumulatorParam

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Part = tuple[int, int]
"""The number of a frame, and of one of its parts."""

_frames = itertools.count()
_accumulators: dict[str, Accumulator[dict[Part, int]]] = {}
"""By application: an accumulator is never forgotten, so there is one for all frames."""


class LateCounts:
    """The late records of one frame, part by part.

    A part counts once, however often it is read, and not before it was read to its end. Good for one driver process.
    """

    def __init__(self) -> None:
        self._frame = next(_frames)
        self._parts: int | None = None
        self._known: dict[Part, int] = {}

    def known(self, late: int) -> None:
        """The frame is read already."""
        self._parts, self._known = 1, {(self._frame, 0): late}

    def by_tasks(self, spark: SparkSession, parts: int) -> TaskCounts:
        """For the tasks that will read the frame, in so many parts."""
        accumulator = _accumulator(spark)
        self._parts, self._known = parts, accumulator.value
        return TaskCounts(accumulator, self._frame)

    @property
    def total(self) -> int | None:
        """How many there are; None while that is not known. Whoever knows it need not ask again: it is forgotten."""
        if self._parts is None:
            return None
        found = [self._known.pop((self._frame, part), None) for part in range(self._parts)]
        return None if None in found else sum(each for each in found if each is not None)


class TaskCounts:
    """What tasks tell of their parts. Travels to the executors."""

    def __init__(self, accumulator: Accumulator[dict[Part, int]], frame: int) -> None:
        self._accumulator = accumulator
        self._frame = frame

    def tell(self, part: int, late: int) -> None:
        """The part was read to its end."""
        self._accumulator.add({(self._frame, part): late})


class _Together(AccumulatorParam[Any]):
    """What is told of one part twice is the same."""

    def zero(self, value: dict[Part, int]) -> dict[Part, int]:  # noqa: ARG002 (Spark asks for it so)
        return {}

    def addInPlace(self, value1: dict[Part, int], value2: dict[Part, int]) -> dict[Part, int]:  # noqa: N802
        value1.update(value2)
        return value1


def _accumulator(spark: SparkSession) -> Accumulator[dict[Part, int]]:
    context = spark.sparkContext
    name = context.applicationId
    if name not in _accumulators:
        _accumulators.clear()
        _accumulators[name] = context.accumulator({}, _Together())
    return _accumulators[name]
