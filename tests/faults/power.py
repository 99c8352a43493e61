"""Power cuts, for real: an ext4 in a file, shut down by the kernel without writing anything back, and mounted again.

After `FS_IOC_SHUTDOWN` nothing more reaches the disk: what was synced is there, of the rest some is and some is not.
Mounting replays the journal, as after a power cut. Needs root, mkfs.ext4 and a loop device.
"""

from __future__ import annotations

import fcntl
import gc
import logging
import os
import random
import shutil
import struct
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from penstock.consume.consumer import Consumer
from penstock.errors import PenstockError
from penstock.log.folder_log import FolderLog
from tests.eventually import LIMIT_SECONDS, eventually
from tests.faults import workers
from tests.faults.checker import Verdict
from tests.faults.history import SCHEMA, History, read_history
from tests.faults.opened import judge_opened

SHUTDOWN = 0x8004587D
"""FS_IOC_SHUTDOWN."""
FLUSH, FLUSH_JOURNAL, FLUSH_NOTHING = 0, 1, 2
"""What is still written before the power is gone: everything, the journal, nothing."""
IMAGE_BYTES = 48 << 20
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
BATCHES_MAX = 80
"""The largest number of acknowledged batches before the power is cut."""
CUTS_PER_LOG = 10
"""Then the log is thrown away and a new one begun, so that judging stays cheap."""


class NoPowerCut(Exception):
    """This machine cannot do it; the message says what it needs."""


class Disk:
    """A small ext4 in a file, mounted, that power can be cut off from."""

    def __init__(self, directory: Path) -> None:
        self.place = directory / "disk"
        self._image = directory / "disk.img"
        if os.geteuid() != 0:
            raise NoPowerCut("only root may mount a file system: run these tests as root")
        if shutil.which("mkfs.ext4", path=PATH) is None:
            raise NoPowerCut("mkfs.ext4 is not installed: apt install e2fsprogs")
        self.place.mkdir()
        with self._image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        try:
            _run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(self._image))
            self.mount()
            _shut_down(self.place, FLUSH)
            self.cut(FLUSH_NOTHING)
        except (OSError, subprocess.CalledProcessError) as error:
            self.close()
            raise NoPowerCut(f"no loop device for an ext4 here (in a container: --privileged): {error}") from error

    def mount(self) -> None:
        """After a cut this replays the journal. The kernel writes nothing back by itself while a test runs."""
        _run("mount", "-o", "loop,commit=3600", str(self._image), str(self.place))

    def cut(self, flush: int) -> None:
        """The power goes and comes back. Waits until no file there is open any more."""
        with suppress(OSError):  # Shut down before.
            _shut_down(self.place, flush)
        eventually(self._is_unmounted, explain=lambda: f"still open: {_holders(self.place)}")
        self.mount()

    def _is_unmounted(self) -> bool:
        gc.collect()
        try:
            _run("umount", str(self.place))
        except subprocess.CalledProcessError:
            return False
        return True

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.place)], check=False, capture_output=True)
        self._image.unlink(missing_ok=True)


def _shut_down(place: Path, flush: int) -> None:
    fd = os.open(place, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, SHUTDOWN, struct.pack("I", flush))
    finally:
        os.close(fd)


def _holders(place: Path) -> list[str]:
    """The open files of that disk, and whose they are."""
    found = []
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if (target := os.readlink(link)).startswith(f"{place}/"):
                found.append(f"{target} of {(link.parents[1] / 'cmdline').read_bytes()[:80]!r}")
    return found


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PATH": PATH})


Chore = Callable[[FolderLog, History, random.Random], Iterator[None]]
"""Acts again and again, and yields after each act."""


class Town:
    """Threads that work on a log while the power is on. Each stops at the first error it gets."""

    def __init__(self, root: Path, histories: Path, number: int, *, seed: int) -> None:
        self._root = root
        self._histories = histories
        self._number = number
        self._name = f"cut-{number}"
        self._dice = random.Random(seed)
        self._acts = [0] * 6
        self.unexpected: list[str] = []

    def work(self, batches: int, power_off: Callable[[], None]) -> None:
        """Work until `batches` are acknowledged and every chore has acted once. Then cut the power, while all go on."""
        writing: list[Chore] = [self._write, self._write, self._produce]
        chores = [*writing, self._consume, self._maintain, self._administer]
        threads = [
            threading.Thread(
                target=self._until_dark, args=(chore, number, self._dice.randrange(1 << 30)), name=chore.__name__,
                daemon=True,
            )
            for number, chore in enumerate(chores)
        ]  # fmt: skip
        for thread in threads:
            thread.start()
        eventually(
            lambda: self.unexpected or (all(self._acts) and sum(self._acts[: len(writing)]) >= batches),
            explain=lambda: f"acts of each thread: {self._acts}",
        )
        power_off()
        for thread in threads:
            thread.join(LIMIT_SECONDS)
            assert not thread.is_alive(), f"{thread} did not notice that the disk is gone"

    def _until_dark(self, chore: Chore, number: int, seed: int) -> None:
        history = History(self._histories / f"{self._name}-{number}.jsonl")
        log = FolderLog(self._root, background=number % 2 == 0)
        try:
            for _ in chore(log, history, random.Random(seed)):
                self._acts[number] += 1
        except (PenstockError, OSError):
            pass
        except BaseException:
            self.unexpected.append(traceback.format_exc())
        finally:
            with suppress(PenstockError, OSError):
                log.close()
            history.close()

    def _write(self, log: FolderLog, history: History, dice: random.Random) -> Iterator[None]:
        writer, following = f"{self._name}-writer-{dice.randrange(1 << 30)}", 0
        while True:
            topic = log.topic(dice.choice([workers.PLAIN, workers.PLAIN, workers.KEPT, workers.TABLE]))
            count = dice.randint(1, 40)
            workers.append(history, topic, writer, dice.randrange(workers.PARTITIONS), following, count)
            following += count
            yield

    def _produce(self, log: FolderLog, history: History, dice: random.Random) -> Iterator[None]:
        writer, following = f"{self._name}-producer", 0
        topic = log.topic(workers.PLAIN)
        with ExitStack() as stack:
            producer = stack.enter_context(log.producer(workers.PLAIN))
            while True:
                count = dice.randint(1, 20)
                fields: dict[str, Any] = {"topic": topic.name, "writer": writer, "partition": None}
                history.add("send", **fields, first=following, count=count)
                producer.send(workers.events(writer, following, count, topic.schema)).wait(LIMIT_SECONDS)
                history.add("ack", **fields, first=following, count=count)
                following += count
                yield

    def _consume(self, log: FolderLog, history: History, dice: random.Random) -> Iterator[None]:
        with Consumer(log, workers.PLAIN, group=workers.GROUP, auto_commit=None, max_rows=200) as consumer:
            while True:
                workers.receive(history, consumer)
                workers.commit(history, consumer)
                yield

    def _maintain(self, log: FolderLog, history: History, dice: random.Random) -> Iterator[None]:
        if self._number % 2:  # So that something is sealed, however slow the machine is.
            log.topic(workers.PLAIN).seal(active=True)
        while True:
            workers.maintain_once(log.topic(dice.choice([workers.PLAIN, workers.KEPT, workers.TABLE])), dice)
            yield
            time.sleep(0.001)

    def _administer(self, log: FolderLog, history: History, dice: random.Random) -> Iterator[None]:
        for number in range(20):
            name = f"{self._name}-{number}"
            log.create(name, SCHEMA)
            history.add("created", topic=name)
            workers.append(history, log.topic(name), name, 0, 0, 5)
            log.topic(name).alter(schema=f"{SCHEMA}, extra string")
            history.add("altered", topic=name, column="extra")
            yield
            time.sleep(0.01)


def power_cuts(
    directory: Path, *, cuts: int, seed: int, report: Callable[[str], None] = lambda _: None
) -> tuple[list[Verdict], list[str]]:
    """Cut the power that often, open the log after each cut, and judge it. Stops at the first fault."""
    disk = Disk(directory)
    # What is logged may hold errors, these their tracebacks, and those open files of a disk that is to be unmounted.
    logging.getLogger("penstock").setLevel(logging.CRITICAL)
    dice = random.Random(seed)
    verdicts: list[Verdict] = []
    unexpected: list[str] = []
    try:
        for number in range(cuts):
            root, histories = (
                disk.place / f"log-{number // CUTS_PER_LOG}",
                directory / f"history-{number // CUTS_PER_LOG}",
            )
            if number % CUTS_PER_LOG == 0:
                _empty(disk.place)
                histories.mkdir()
                workers.make_topics(root)
            town = Town(root, histories, number, seed=dice.randrange(1 << 30))
            flush = dice.choice([FLUSH_NOTHING, FLUSH_NOTHING, FLUSH_NOTHING, FLUSH_JOURNAL, FLUSH])
            town.work(dice.randint(1, BATCHES_MAX), lambda flush=flush: _shut_down(disk.place, flush))  # type: ignore[misc]
            unexpected += town.unexpected
            disk.cut(flush)
            verdicts.append(judge_opened(root, list(read_history(histories))))
            if unexpected or not verdicts[-1].is_clean:
                break
            if (number + 1) % CUTS_PER_LOG == 0 or number + 1 == cuts:
                report(f"{number + 1} power cuts: {verdicts[-1]}")
    finally:
        logging.getLogger("penstock").setLevel(logging.NOTSET)
        disk.close()
    return verdicts, unexpected


def _empty(place: Path) -> None:
    for path in place.glob("log-*"):
        subprocess.run(["rm", "-rf", str(path)], check=True)
