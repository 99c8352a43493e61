"""Small plans without Spark's scheduler: what a task would do, done in the driver's own thread.

A job of one small task takes Spark 20 to 50 ms, nearly all of it for packing the plan, handing it to an executor and
unpacking it again. What the task does then takes 2 ms. The other half of this private business is in `jvm`.
"""

from __future__ import annotations

import itertools
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.plans.jvm import Java, companion

if TYPE_CHECKING:
    from penstock.plans.jvm import Catalyst

MEMORY_BYTES = 256 << 20
PAGE_BYTES = 1 << 20
"""Spark's own pages grow with the heap, and every one is filled with zeros first."""
IN_MEMORY = Path("/dev/shm")
"""Where Linux keeps files that never reach a disk."""

_attempts = itertools.count(1)


class Tasks:
    """What all tasks of a session share."""

    def __init__(self, maker: Catalyst, context: Java, settings: dict[str, str]) -> None:
        spark, io = maker.jvm.org.apache.spark, maker.jvm.java.io
        conf = context.getConf().set("spark.buffer.pageSize", str(PAGE_BYTES))
        self._memory = spark.memory.UnifiedMemoryManager(conf, MEMORY_BYTES, 0, 1)
        self._memory_of_task = spark.memory.TaskMemoryManager
        self._context = spark.TaskContextImpl
        self._metrics = spark.executor.TaskMetrics()
        self._file, self._data = io.FileOutputStream, io.DataOutputStream
        self._nothing = maker.partial_function([])
        self.none = maker.none
        self.contexts = companion(spark, "TaskContext")
        self.writer = spark.api.python.PythonRDD
        # What SQLExecution does for every query: a task finds the session's settings in its properties.
        self._properties = maker.jvm.java.util.Properties()
        for name, value in settings.items():
            self._properties.setProperty(name, value)
        # py4j would bring an answer of more than 8 KB over in pieces, and wait 40 ms for the last of them.
        self._folder = tempfile.TemporaryDirectory(
            prefix="penstock-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None, ignore_cleanup_errors=True
        )

    def begin(self) -> Task:
        """A task of this thread, which has no other."""
        attempt = next(_attempts)
        memory = self._memory_of_task(self._memory, attempt)
        context = self._context(
            0, 0, 0, attempt, 0, 1, memory, self._properties, None, self._metrics, None, self._nothing
        )
        path = Path(self._folder.name, str(attempt))
        return Task(self, context, memory, self._data(self._file(str(path))), path)


class Task:
    """Runs the one partition of RDDs of bytes, one after the other, until its `end`."""

    def __init__(self, tasks: Tasks, context: Java, memory: Java, out: Java, path: Path) -> None:
        self._tasks = tasks
        self._context = context
        self._memory = memory
        self._out = out
        self._answers = path.open("rb")
        path.unlink()

    def run(self, rdd: Java, partition: Java) -> list[bytes]:
        """All elements of the partition. Raises whatever the plan raises."""
        try:
            with self._as_task():
                self._tasks.writer.writeIteratorToStream(rdd.iterator(partition, self._context), self._out)
        finally:
            answer = self._answers.read()  # Also of a plan that failed half way: the next one begins behind it.
        return _framed(answer)

    def end(self) -> None:
        """Gives back all that it took."""
        with self._as_task():
            self._context.markTaskCompleted(self._tasks.none)
        self._memory.cleanUpAllAllocatedMemory()
        self._out.close()
        self._answers.close()

    @contextmanager
    def _as_task(self) -> Iterator[None]:
        """The thread is a task's, and only here: between two plans of a turn others are planned, which no task may."""
        self._tasks.contexts.setTaskContext(self._context)
        try:
            yield
        finally:
            self._tasks.contexts.unset()


class Turn:
    """Several small plans in a row, in one thread: they share a task, which begins with the first."""

    def __init__(self) -> None:
        self._task: Task | None = None

    def __enter__(self) -> Turn:
        return self

    def __exit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.end()

    def task(self, tasks: Tasks) -> Task:
        """The task of this turn."""
        if self._task is None:
            self._task = tasks.begin()
        return self._task


def _framed(data: bytes) -> list[bytes]:
    """Elements as Spark writes them, each behind its length."""
    found, place = [], 0
    while place < len(data):
        (size,) = struct.unpack_from(">i", data, place)
        found.append(data[place + 4 : place + 4 + size])
        place += 4 + size
    return found
