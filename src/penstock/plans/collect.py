"""The rows of several plans, computed side by side and brought to the driver as Arrow tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.plans.task import Turn

if TYPE_CHECKING:
    from penstock.plans.prepared import Asked

_jobs = ThreadPoolExecutor(20, thread_name_prefix="penstock-job")
_CORES = os.cpu_count() or 1
_small = ThreadPoolExecutor(_CORES, thread_name_prefix="penstock-small")


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
    if not asked:
        return []
    tables = _quickly(asked)
    jobs = {index: _jobs.submit(_by_spark, index, asked[index]) for index, table in enumerate(tables) if table is None}
    for job in jobs.values():
        job.exception()
    return [jobs[index].result() if table is None else table for index, table in enumerate(tables)]


def _quickly(asked: Sequence[Asked]) -> list[pa.Table | None]:
    """The rows of those that are small, by as many threads as there are cores."""
    if len(asked) == 1:
        return _in_turn(asked)
    parts = [asked[place::_CORES] for place in range(min(_CORES, len(asked)))]
    found: list[pa.Table | None] = [None] * len(asked)
    for place, tables in enumerate(_small.map(_in_turn, parts)):
        found[place::_CORES] = tables
    return found


def _in_turn(asked: Sequence[Asked]) -> list[pa.Table | None]:
    with Turn() as turn:
        return [each.quickly(turn) for each in asked]


def _by_spark(index: int, asked: Asked) -> pa.Table:
    try:
        return asked.frame.toArrow()
    except Exception as error:
        raise FrameFailed(index, error) from error
