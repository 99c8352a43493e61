"""Small frames, run side by side and brought to the driver as Arrow tables."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_pool = ThreadPoolExecutor(20, thread_name_prefix="penstock-collect")


class FrameFailed(Exception):
    """One of several frames could not be computed; `index` says which, the cause is Spark's own error."""

    def __init__(self, index: int, cause: BaseException) -> None:
        super().__init__(f"frame {index} could not be computed: {cause}")
        self.index = index
        self.__cause__ = cause


def collect(frames: Sequence[DataFrame]) -> list[pa.Table]:
    """The rows of each frame, in the order of the frames, with the types of its schema.

    Raises FrameFailed for the first that fails, after all have ended.
    """
    if len(frames) == 1:
        return [_one(0, frames[0])]
    started = [_pool.submit(_one, index, frame) for index, frame in enumerate(frames)]
    for future in started:
        future.exception()
    return [future.result() for future in started]


def _one(index: int, frame: DataFrame) -> pa.Table:
    try:
        return frame.toArrow()
    except Exception as error:
        raise FrameFailed(index, error) from error
