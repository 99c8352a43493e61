"""Files of the log that stay open between uses, and what happens when a process may open no more.

A partition needs three files or more, and a topic may have a thousand partitions. So what is open is counted over the
whole process: beyond half of its limit, files that were not used lately are closed, and opened again when needed.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import TypeVar

from penstock.access import open_file
from penstock.errors import OutOfFiles

WANTED = 1 << 16
"""The limit of open files that commands ask for."""
EXHAUSTED = (errno.EMFILE, errno.ENFILE)

_Opened = TypeVar("_Opened")


class PooledFile:
    """A file, open for reading and writing, that may be closed between two uses."""

    def __init__(self, path: Path, *, is_made: bool = False, on_open: Callable[[FileIO], object] | None = None) -> None:
        """With `is_made` it is made if it is not there. `on_open` looks at the file each time it was opened."""
        self.path = path
        self._flags = os.O_RDWR | (os.O_CREAT if is_made else 0)
        self._on_open = on_open
        self._file: FileIO | None = None
        self._was_used = False
        self.pins = 0
        """While it is above 0 the pool leaves the file open. Its owner counts, in one thread at a time."""

    def open(self) -> FileIO:
        """The open file. Keep the reference for as long as the descriptor is used: the last one closes it."""
        self._was_used = True
        return self._file or self._opened()

    def close(self) -> None:
        self._file = None

    def _opened(self) -> FileIO:
        file = FileIO(open_fd(self.path, self._flags), "r+")
        self._check(file)
        self._file = file
        _pool.add(self)
        return file

    def _check(self, file: FileIO) -> None:
        """Looks at the file each time it was opened."""
        if self._on_open is not None:
            self._on_open(file)

    def close_unless_used(self) -> bool:
        """False if it is pinned, or was used since this was asked before."""
        if self.pins or self._was_used:
            self._was_used = False
            return False
        self._file = None
        return True


class _Pool:
    """All pooled files that are open, the one that was opened or spared longest ago first."""

    def __init__(self) -> None:
        self._files: deque[weakref.ref[PooledFile]] = deque()
        self._lock = threading.Lock()

    def add(self, file: PooledFile) -> None:
        with self._lock:
            for _ in range(2 * len(self._files)):
                if len(self._files) < _open_max():
                    break
                found = self._files.popleft()
                each = found()
                if each is not None and each is not file and not each.close_unless_used():
                    self._files.append(found)
            self._files.append(weakref.ref(file))

    def close_all(self) -> None:
        with self._lock:
            kept = []
            for found in self._files:
                each = found()
                if each is not None and each.pins:
                    kept.append(found)
                elif each is not None:
                    each.close()
            self._files = deque(kept)

    def renew(self) -> None:
        self._lock = threading.Lock()


_pool = _Pool()
os.register_at_fork(after_in_child=_pool.renew)


def open_fd(path: Path, flags: int) -> int:
    """Opens a file, by the rules of `access` if it is made. OutOfFiles where no descriptor is left."""
    return with_descriptor(path, lambda: open_file(path, flags))


def with_descriptor(path: Path, call: Callable[[], _Opened]) -> _Opened:
    """Runs what needs a descriptor; if none is left, once more without the pooled files that nobody uses."""
    for is_last in (False, True):
        try:
            return call()
        except OSError as error:
            if error.errno not in EXHAUSTED:
                raise
            if is_last:
                raise OutOfFiles(path) from error
            _pool.close_all()
    raise AssertionError("unreachable")


def raise_limit() -> None:
    """Lets this process open as many files as it may, up to `WANTED`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(hard, WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _open_max() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return WANTED if soft == resource.RLIM_INFINITY else max(soft // 2, 16)
