"""Small plans without Spark's scheduler: what a task would do, done in the driver's own thread.

A job of one small task takes Spark 20 to 50 ms, nearly all of it for packing the plan, handing it to an executor and
unpacking it again. What the task does then takes 2 ms. The other half of this private business is in `jvm`.
"""

from __future__ import annotations

import itertools
import struct
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.memory_folder import memory_folder
from penstock.spark.private.jvm import Java, companion

if TYPE_CHECKING:
    from penstock.spark.private.jvm import Catalyst

MEMORY_BYTES = 256 << 20
PAGE_BYTES = 1 << 20
"""Spark's own pages grow with the heap, and every one is filled with zeros first."""

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
        self.write = spark.api.python.PythonRDD.writeIteratorToStream
        # What SQLExecution does for every query: a task finds the session's settings in its properties.
        self._properties = maker.jvm.java.util.Properties()
        for name, value in settings.items():
            self._properties.setProperty(name, value)
        # An aggregation makes projections as it begins. To generate code for them, which is run once, took half of
        # the time of a small plan. The code of the plan itself is generated when it is prepared.
        self._properties.setProperty("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        # py4j would bring an answer of more than 8 KB over in pieces, and wait 40 ms for the last of them.
        self._of_thread = threading.local()
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-", dir=memory_folder(), ignore_cleanup_errors=True)

    def begin(self) -> Task:
        """A task of this thread, which has no other."""
        attempt = next(_attempts)
        memory = self._memory_of_task(self._memory, attempt)
        context = self._context(
            0, 0, 0, attempt, 0, 1, memory, self._properties, None, self._metrics, None, self._nothing
        )
        return Task(self, context, memory)

    def forget_answers(self) -> None:
        """This thread's tasks answer by another file from now on."""
        self._of_thread.answers = None

    def answers(self) -> Answers:
        """The file that this thread's tasks answer by."""
        found: Answers | None = getattr(self._of_thread, "answers", None)
        if found is None:
            path = Path(self._folder.name, str(threading.get_ident()))
            out = self._data(self._file(str(path), True))
            found = self._of_thread.answers = Answers(out, path)
        return found


class Answers:
    """A file in memory that Java appends to, and that is emptied when it is read: made once for each thread."""

    def __init__(self, out: Java, path: Path) -> None:
        self.out = out
        self._file = path.open("r+b")
        path.unlink()

    def taken(self) -> bytes:
        """What was written since the last time."""
        found = self._file.read()
        self._file.seek(0)
        self._file.truncate()
        return found


class Task:
    """Runs the one partition of RDDs of bytes, one after the other, until its `end`."""

    def __init__(self, tasks: Tasks, context: Java, memory: Java) -> None:
        self._tasks = tasks
        self._context = context
        self._memory = memory

    def run(self, rdd: Java, partition: Java) -> list[bytes]:
        """All elements of the partition. Raises whatever the plan raises."""
        answers = self._tasks.answers()
        try:
            with self._as_task():
                self._tasks.write(rdd.iterator(partition, self._context), answers.out)
        except Exception:
            answers.taken()  # Of a plan that failed half way: the next one begins anew.
            raise
        except BaseException:
            self._tasks.forget_answers()  # Interrupted: Java may still be writing, and this thread's next plan reads.
            raise
        return _framed(answers.taken())

    def end(self) -> None:
        """Gives back all that it took."""
        with self._as_task():
            self._context.markTaskCompleted(self._tasks.none)
        self._memory.cleanUpAllAllocatedMemory()

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
        self.end()

    def end(self) -> None:
        """Ends the task, if there was one. What comes after it is another turn."""
        task, self._task = self._task, None
        if task is not None:
            task.end()

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
