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
import struct
import subprocess
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from penstock.consume.consumer import Consumer
from penstock.errors import PenstockError
from penstock.log.folder_log import FolderLog
from tests.faults import workers
from tests.faults.checker import Verdict
from tests.faults.history import SCHEMA, History, read_history
from tests.faults.opened import judge_opened

SHUTDOWN = 0x8004587D
"""FS_IOC_SHUTDOWN."""
FLUSH, FLUSH_JOURNAL, FLUSH_NOTHING = 0, 1, 2
"""What is still written before the power is gone: everything, the journal, nothing."""
IMAGE_BYTES = 48 << 20
PATIENCE = 30.0
"""Seconds until the last file of a disk must be closed."""
CUTS_PER_LOG = 10
"""Then the log is thrown away and a new one begun, so that judging stays cheap."""


class NoPowerCut(Exception):
    """This machine cannot do it; the reason is for people."""


class Disk:
    """A small ext4 in a file, mounted, that power can be cut off from."""

    def __init__(self, directory: Path) -> None:
        self.place = directory / "disk"
        self._image = directory / "disk.img"
        if os.geteuid() != 0:
            raise NoPowerCut("only root may mount a file system")
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
            raise NoPowerCut(f"no ext4 in a loop-mounted file here: {error}") from error

    def mount(self) -> None:
        """Mounts it; after a cut this replays the journal."""
        _run("mount", "-o", "loop", str(self._image), str(self.place))

    def cut(self, flush: int) -> None:
        """The power is gone, and comes back. Nobody may have a file open there any more, or it takes a while."""
        with suppress(OSError):  # Shut down before.
            _shut_down(self.place, flush)
        patience = time.monotonic() + PATIENCE
        while True:
            gc.collect()
            try:
                _run("umount", str(self.place))
                break
            except subprocess.CalledProcessError as error:
                if time.monotonic() > patience:
                    raise AssertionError(f"still held by {_holders(self.place)}: {error.stderr.decode()}") from error
                time.sleep(0.02)
        self.mount()

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
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PATH": path})


class Town:
    """Everybody who works on a log while the power is on. One thread each; each stops at the first error it gets."""

    def __init__(self, root: Path, histories: Path, name: str, *, seed: int) -> None:
        self._root = root
        self._histories = histories
        self._name = name
        self._dice = random.Random(seed)
        self.unexpected: list[str] = []

    def work(self, seconds: float, power_off: Callable[[], None]) -> None:
        """Works for a while; then the power goes, in the middle of it."""
        chores: list[Callable[[FolderLog, History, random.Random], None]]
        chores = [self._write, self._write, self._produce, self._consume, self._maintain, self._administer]
        threads = [
            threading.Thread(target=self._until_dark, args=(chore, number), daemon=True)
            for number, chore in enumerate(chores)
        ]
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        power_off()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive(), f"{thread} did not notice that the disk is gone"

    def _until_dark(self, chore: Callable[[FolderLog, History, random.Random], None], number: int) -> None:
        history = History(self._histories / f"{self._name}-{number}.jsonl")
        log = FolderLog(self._root, background=number % 2 == 0)
        try:
            chore(log, history, random.Random(self._dice.randrange(1 << 30)))
        except (PenstockError, OSError):
            pass
        except BaseException:
            self.unexpected.append(traceback.format_exc())
        finally:
            with suppress(PenstockError, OSError):
                log.close()
            history.close()

    def _write(self, log: FolderLog, history: History, dice: random.Random) -> None:
        writer, following = f"{self._name}-writer-{dice.randrange(1 << 30)}", 0
        while True:
            topic = log.topic(dice.choice([workers.PLAIN, workers.PLAIN, workers.KEPT, workers.TABLE]))
            count = dice.randint(1, 40)
            workers.append(history, topic, writer, dice.randrange(workers.PARTITIONS), following, count)
            following += count

    def _produce(self, log: FolderLog, history: History, dice: random.Random) -> None:
        writer, following = f"{self._name}-producer", 0
        topic = log.topic(workers.PLAIN)
        with ExitStack() as stack:
            producer = stack.enter_context(log.producer(workers.PLAIN))
            while True:
                count = dice.randint(1, 20)
                fields: dict[str, Any] = {"topic": topic.name, "writer": writer, "partition": None}
                history.add("send", **fields, first=following, count=count)
                producer.send(workers.events(writer, following, count, topic.schema)).wait(30)
                history.add("ack", **fields, first=following, count=count)
                following += count

    def _consume(self, log: FolderLog, history: History, dice: random.Random) -> None:
        with Consumer(log, workers.PLAIN, group=workers.GROUP, auto_commit=None, max_rows=200) as consumer:
            while True:
                workers.receive(history, consumer)
                workers.commit(history, consumer)

    def _maintain(self, log: FolderLog, history: History, dice: random.Random) -> None:
        while True:
            workers.maintain_once(log.topic(dice.choice([workers.PLAIN, workers.KEPT, workers.TABLE])), dice)
            time.sleep(0.001)

    def _administer(self, log: FolderLog, history: History, dice: random.Random) -> None:
        for number in range(20):
            name = f"{self._name}-{number}"
            log.create(name, SCHEMA)
            history.add("created", topic=name)
            workers.append(history, log.topic(name), name, 0, 0, 5)
            log.topic(name).alter(schema=f"{SCHEMA}, extra string")
            history.add("altered", topic=name, column="extra")
            time.sleep(0.01)


def power_cuts(
    directory: Path, *, cuts: int, seed: int, report: Callable[[str], None] = lambda _: None
) -> tuple[list[Verdict], list[str]]:
    """Cuts the power that often, opens the log after each cut, and judges. Stops at the first fault."""
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
            town = Town(root, histories, f"cut-{number}", seed=dice.randrange(1 << 30))
            flush = dice.choice([FLUSH_NOTHING, FLUSH_NOTHING, FLUSH_NOTHING, FLUSH_JOURNAL, FLUSH])
            town.work(dice.uniform(0.01, 0.2), lambda flush=flush: _shut_down(disk.place, flush))  # type: ignore[misc]
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
