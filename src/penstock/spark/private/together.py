"""Several small plans over the same rows, run by one call.

A call over py4j costs as much as Spark needs for some hundred rows. So the plans of views that read one topic become
one RDD: their rows come one plan after the other, with a mark behind each.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.spark.private.physical import PhysicalPlan

if TYPE_CHECKING:
    from penstock.spark.private.rows import LocalRows
    from penstock.spark.private.task import Turn

KNOWN_MAX = 256
"""So many combinations of plans are remembered; a stream asks for the same few at every step."""

_MARK = b""
"""Behind the rows of each plan. No Arrow message is empty."""


def run_together(plans: Sequence[PhysicalPlan], rows: LocalRows, turn: Turn) -> list[pa.Table]:
    """What each plan gives over these rows. Raises what the first that fails raises, and then there is nothing."""
    return _combined(tuple(plans)).run(rows, turn)


@lru_cache(maxsize=KNOWN_MAX)
def _combined(plans: tuple[PhysicalPlan, ...]) -> _Combined:
    return _Combined(plans)


class _Combined:
    """Plans that are ready, as one RDD with one partition."""

    def __init__(self, plans: tuple[PhysicalPlan, ...]) -> None:
        self._plans = plans
        self._maker = plans[0].maker
        self._source = plans[0].partition
        """What all of them read."""
        self._rdd, self._partition = self._maker.one_after_the_other([plan.rdd for plan in plans], _MARK, self._source)

    def run(self, rows: LocalRows, turn: Turn) -> list[pa.Table]:
        with ExitStack() as held:
            for plan in sorted({*self._plans}, key=id):  # In one order, or two threads could wait for each other.
                held.enter_context(plan.lock)
            self._maker.put_rows(self._source, rows.partitions)
            messages = turn.task(self._maker.tasks).run(self._rdd, self._partition)
        return [plan.table(part) for plan, part in zip(self._plans, _parts(messages), strict=True)]


def _parts(messages: Sequence[bytes]) -> list[list[bytes]]:
    """The messages of each plan."""
    found: list[list[bytes]] = [[]]
    for each in messages:
        if each == _MARK:
            found.append([])
        else:
            found[-1].append(each)
    assert not found[-1], "rows after the last mark"
    return found[:-1]
