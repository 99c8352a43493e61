"""Small frames, run side by side and brought to the driver as Arrow tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.plans.jvm import catalyst
from penstock.plans.physical import READY, Ready, run_ready

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_pool = ThreadPoolExecutor(20, thread_name_prefix="penstock-collect")
_planners = ThreadPoolExecutor(4, thread_name_prefix="penstock-plan")

PLANS_PER_JOB = 4
"""A job costs 10 ms. But each of its tasks unpacks the plans of all the others, so a job of many is dearer still."""


class FrameFailed(Exception):
    """One of several frames could not be computed; `index` says which, the cause is Spark's own error."""

    def __init__(self, index: int, cause: BaseException) -> None:
        super().__init__(f"frame {index} could not be computed: {cause}")
        self.index = index
        self.__cause__ = cause


def collect(frames: Sequence[DataFrame]) -> list[pa.Table]:
    """The rows of each frame, in the order of the frames, with the types of its schema.

    Frames whose physical plan is known already run as one job, the others each as its own, side by side. Raises
    FrameFailed for the first that fails, after all have ended.
    """
    ready = _ready(frames)
    others = {index: frame for index, frame in enumerate(frames) if index not in ready}
    started = {index: _pool.submit(_one, index, frame) for index, frame in others.items()} if len(frames) > 1 else {}
    found = _run(frames, ready)
    found.update({index: _one(index, frame) for index, frame in others.items() if index not in started})
    for future in started.values():
        future.exception()
    found.update({index: future.result() for index, future in started.items()})
    return [found[index] for index in range(len(frames))]


def _ready(frames: Sequence[DataFrame]) -> dict[int, Ready]:
    """Those frames that need no planning, by their place. One plan can be in a job once."""
    makers: dict[int, Callable[[], Ready | None]] = {
        index: vars(frame)[READY] for index, frame in enumerate(frames) if READY in vars(frame)
    }
    made = (
        _planners.map(lambda make: make(), makers.values()) if len(makers) > 1 else (make() for make in makers.values())
    )
    chosen: dict[int, Ready] = {}
    for index, plan in zip(makers, made, strict=True):
        if plan is not None and plan.number not in {each.number for each in chosen.values()}:
            chosen[index] = plan
    return chosen


def _run(frames: Sequence[DataFrame], ready: dict[int, Ready]) -> dict[int, pa.Table]:
    if not ready:
        return {}
    places = list(ready)
    jobs = [places[start : start + PLANS_PER_JOB] for start in range(0, len(places), PLANS_PER_JOB)]
    maker = catalyst(frames[0].sparkSession)

    def run(job: list[int]) -> dict[int, pa.Table]:
        try:
            return dict(zip(job, run_ready(maker, [ready[index] for index in job]), strict=True))
        except Exception:
            # One of them failed, and Spark does not say which: each by itself tells.
            return {index: _one(index, frames[index]) for index in job}

    done = map(run, jobs) if len(jobs) == 1 else _planners.map(run, jobs)
    return {index: table for each in done for index, table in each.items()}


def _one(index: int, frame: DataFrame) -> pa.Table:
    try:
        return frame.toArrow()
    except Exception as error:
        raise FrameFailed(index, error) from error
