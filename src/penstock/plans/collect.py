"""The rows of several plans, computed side by side and brought to the driver as Arrow tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from penstock.plans.prepared import Asked

_jobs = ThreadPoolExecutor(20, thread_name_prefix="penstock-job")
_small = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="penstock-small")


class FrameFailed(Exception):
    """One of several frames could not be computed; `index` says which, the cause is Spark's own error."""

    def __init__(self, index: int, cause: BaseException) -> None:
        super().__init__(f"frame {index} could not be computed: {cause}")
        self.index = index
        self.__cause__ = cause


def collect(asked: Sequence[Asked]) -> list[pa.Table]:
    """The rows of each, in the order in which they were asked for, with the types of its schema.

    Small ones are computed right here, the others by Spark, each as a job of its own. Raises FrameFailed for the first
    that fails, after all have ended.
    """
    if len(asked) == 1:
        table = asked[0].quickly()
        return [_by_spark(0, asked[0]) if table is None else table]
    tables = [*_small.map(lambda each: each.quickly(), asked)]
    jobs = {index: _jobs.submit(_by_spark, index, asked[index]) for index, table in enumerate(tables) if table is None}
    for job in jobs.values():
        job.exception()
    return [jobs[index].result() if table is None else table for index, table in enumerate(tables)]


def _by_spark(index: int, asked: Asked) -> pa.Table:
    try:
        return asked.frame.toArrow()
    except Exception as error:
        raise FrameFailed(index, error) from error
