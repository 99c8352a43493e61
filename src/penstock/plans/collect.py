"""The rows of several plans, computed side by side and brought to the driver as Arrow tables."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, overload

import pyarrow as pa

from penstock.spark.private.prepared import small_plans

if TYPE_CHECKING:
    from types import TracebackType

    from penstock.spark.private.prepared import Asked
    from penstock.spark.private.protocols import SmallPlans

_jobs = ThreadPoolExecutor(20, thread_name_prefix="penstock-job")
_HELPERS = max(1, (os.cpu_count() or 1) - 1)
"""So many threads compute small plans beside the one that wants them, which needs a core for what it does with them."""
_small = ThreadPoolExecutor(_HELPERS, thread_name_prefix="penstock-small")

Waiting = tuple["Asked", Future[pa.Table]]


class FrameFailed(Exception):
    """One of several frames could not be computed; `index` says which, the cause is Spark's own error."""

    def __init__(self, index: int, cause: BaseException) -> None:
        super().__init__(f"frame {index} could not be computed: {cause}")
        self.index = index
        self.__cause__ = cause


class Tables(Sequence[pa.Table]):
    """Tables that are being computed, in the order in which they were asked for, with the types of their schemas.

    Whoever takes one that is not there yet helps to compute, and then waits for it; FrameFailed if it could not be
    computed. One thread takes, and at the end of its `with` nothing is computed any more.
    """

    def __init__(self, asked: Sequence[Asked]) -> None:
        self._futures = [Future[pa.Table]() for _ in asked]
        self._waiting: deque[Waiting] = deque(zip(asked, self._futures, strict=True))
        self._small = small_plans()

    def wait(self) -> None:
        """Until all are computed, well or not."""
        while some := self._share():
            _compute(some, self._small)
        wait(self._futures)
        self._small.end()

    def help(self) -> None:
        """Computes what nobody has begun with; another thread's part of it."""
        small = small_plans()
        try:
            while some := self._share():
                _compute(some, small)
        finally:
            small.end()

    def _share(self) -> list[Waiting]:
        """What one of those who compute takes, by one call: as much as each of the others."""
        return self._claimed(-(-len(self._futures) // (_HELPERS + 1)))

    def _claimed(self, count: int) -> list[Waiting]:
        found: list[Waiting] = []
        while len(found) < count:
            try:
                found.append(self._waiting.popleft())
            except IndexError:
                break
        return found

    def __len__(self) -> int:
        return len(self._futures)

    @overload
    def __getitem__(self, place: int) -> pa.Table: ...
    @overload
    def __getitem__(self, place: slice) -> list[pa.Table]: ...
    def __getitem__(self, place: int | slice) -> pa.Table | list[pa.Table]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        wanted = self._futures[place]
        while not wanted.done() and (some := self._share()):
            _compute(some, self._small)
        try:
            return wanted.result()
        except Exception as error:
            raise FrameFailed(place, error) from error

    def __iter__(self) -> Iterator[pa.Table]:
        return (self[place] for place in range(len(self)))

    def __enter__(self) -> Tables:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for _, future in self._claimed(len(self)):  # Nobody wants these any more.
            future.set_exception(CancelledError())
        self.wait()


def begin(asked: Sequence[Asked]) -> Tables:
    """Begins to compute the rows of each: small ones by threads of the driver, the others by Spark, a job for each."""
    tables = Tables(asked)
    for _ in range(min(_HELPERS, len(asked) - 1)):
        _small.submit(tables.help)
    return tables


def collect(asked: Sequence[Asked]) -> list[pa.Table]:
    """The rows of each. Raises FrameFailed for the first that fails, after all have ended."""
    tables = begin(asked)
    tables.wait()
    return list(tables)


def _compute(some: Sequence[Waiting], small: SmallPlans) -> None:
    """Gives the small ones their rows, and the others to Spark."""
    given: set[Future[pa.Table]] = set()
    try:
        tables = small.compute([asked for asked, _ in some])
        for (asked, future), table in zip(some, tables, strict=True):
            if table is None:
                _jobs.submit(_by_spark, asked, future)
            else:
                asked.was_small = True
                future.set_result(table)
            given.add(future)
    except BaseException as error:
        for future in {future for _, future in some} - given:  # Or whoever waits for them would wait for ever.
            future.set_exception(error)
        raise


def _by_spark(asked: Asked, future: Future[pa.Table]) -> None:
    try:
        future.set_result(asked.by_spark())
    except BaseException as error:
        future.set_exception(error)
