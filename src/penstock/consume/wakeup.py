"""Sleeping until a file or directory changes, without looking at it again and again.

On Linux the kernel tells (inotify), so a sleeper costs nothing at all. Where there is no inotify, or no more of it to
be had (`fs.inotify.max_user_instances`), or where a path does not exist yet, it is looked at a few times a second.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import math
import os
import select
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

logger = logging.getLogger("penstock.log")

LOOK_SECONDS_MIN = 0.02
LOOK_SECONDS_MAX = 0.25
"""How often a path is looked at that the kernel does not watch for us."""


class Wakeup:
    """A sleeper that is woken by changes of files and directories, or by another thread.

    `watch`, then look at the state, then `wait`: a change between the look and the wait is not missed. A file changes
    when it is written to, replaced or removed; a directory when a name in it comes or goes, or when a file in it that
    was open for writing is closed, be it by the death of its process. One thread waits; any thread may `notify`.
    """

    _inotify = _read_end = _write_end = -1

    def __init__(self, *, is_polling: bool = False) -> None:
        self._lock = threading.RLock()  # A signal may notify while its thread does.
        self._inotify = -1 if is_polling else _open_inotify()
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)
        self._poller = select.poll()
        self._poller.register(self._read_end, select.POLLIN)
        if self._inotify >= 0:
            self._poller.register(self._inotify, select.POLLIN)
        self._watches: dict[int, Path] = {}
        self._looked: dict[Path, object] = {}

    @property
    def is_polling(self) -> bool:
        """Whether some path has to be looked at, because the kernel does not watch it."""
        return bool(self._looked)

    @property
    def watched(self) -> frozenset[Path]:
        """Every path that was asked for."""
        return frozenset(self._watches.values()) | frozenset(self._looked)

    def watch(self, path: Path) -> None:
        """Wakes at changes of `path` from now on. Harmless if it is watched already, or not there yet."""
        if path not in self.watched and not self._watch_by_kernel(path):
            self._looked[path] = _look(path)

    def unwatch(self, path: Path) -> None:
        """Forgets the path."""
        self._looked.pop(path, None)
        for watch in [watch for watch, watched in self._watches.items() if watched == path]:
            del self._watches[watch]
            _remove_watch(self._inotify, watch)

    def wait(self, timeout: float | None) -> frozenset[Path]:
        """Sleeps until something changed, and says what. Empty after `timeout` seconds, or after `notify`."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        pause = LOOK_SECONDS_MIN
        while True:
            changed = self._look_again()
            remaining = 0.0 if changed else max(0.0, deadline - time.monotonic())
            if self._looked:
                remaining, pause = min(remaining, pause), min(2 * pause, LOOK_SECONDS_MAX)
            # Rounded up: rounded down, the last millisecond would be spent spinning.
            ready = self._poller.poll(None if remaining == math.inf else math.ceil(remaining * 1000))
            is_notified = self._was_notified()
            changed |= self._drain()
            # An event of a watch that was taken back meanwhile wakes too: one look too many is harmless.
            if changed or is_notified or ready or time.monotonic() >= deadline:
                return frozenset(changed)

    def notify(self) -> None:
        """Ends the current `wait`, or the next one. From any thread; harmless after `close`."""
        # Closed meanwhile, the number could be that of another file.
        with self._lock:
            if self._write_end >= 0:
                with suppress(BlockingIOError):  # Full of notifications: one is enough.
                    os.write(self._write_end, b"!")

    def close(self) -> None:
        """Lets go of everything. Harmless the second time; not while another thread waits."""
        with self._lock:
            for fd in (self._inotify, self._read_end, self._write_end):
                if fd >= 0:
                    os.close(fd)
            self._inotify = self._read_end = self._write_end = -1

    def __enter__(self) -> Wakeup:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _watch_by_kernel(self, path: Path) -> bool:
        if self._inotify < 0:
            return False
        watch = _add_watch(self._inotify, path)
        if watch is not None:
            self._watches[watch] = path
        return watch is not None

    def _was_notified(self) -> bool:
        try:
            return bool(os.read(self._read_end, 4096))
        except BlockingIOError:
            return False

    def _drain(self) -> set[Path]:
        """Takes all events the kernel has for us."""
        changed: set[Path] = set()
        if self._inotify < 0:
            return changed
        with suppress(BlockingIOError):
            while True:
                for watch, mask in _events(os.read(self._inotify, 65536)):
                    if mask & IN_Q_OVERFLOW:
                        changed |= self.watched
                    path = self._watches.get(watch)
                    if path is not None:
                        changed.add(path)
                        if mask & _GONE:
                            self._watch_anew(watch, path)
        return changed

    def _watch_anew(self, watch: int, path: Path) -> None:
        """The watched thing may have lost its name; whatever bears the name now is watched instead."""
        del self._watches[watch]
        again = _add_watch(self._inotify, path)
        if again is None:
            self._looked[path] = None
        else:
            self._watches[again] = path
        if again != watch:
            _remove_watch(self._inotify, watch)

    def _look_again(self) -> set[Path]:
        changed: set[Path] = set()
        for path, before in list(self._looked.items()):
            after = _look(path)
            if after is not None and self._watch_by_kernel(path):
                del self._looked[path]
                changed.add(path)  # Whether it changed before it was watched cannot be known.
            elif after != before:
                self._looked[path] = after
                changed.add(path)
        return changed


def _look(path: Path) -> object:
    """Something that differs once the path has changed; None if it is not there."""
    try:
        if path.is_dir():
            return frozenset(os.listdir(path))
        status = path.stat()
        # A clock tick is too coarse to tell two writes apart; what is watched here is small enough to be read.
        content = path.read_bytes() if status.st_size <= 65536 else b""
        return status.st_ino, status.st_size, status.st_mtime_ns, content
    except (FileNotFoundError, NotADirectoryError):
        return None


# --- inotify, as much of it as is needed; the constants are those of <sys/inotify.h> ---

IN_MODIFY, IN_ATTRIB, IN_CLOSE_WRITE = 0x2, 0x4, 0x8
IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE = 0x40, 0x80, 0x100, 0x200
IN_DELETE_SELF, IN_MOVE_SELF, IN_Q_OVERFLOW, IN_IGNORED = 0x400, 0x800, 0x4000, 0x8000

# An unlinked file that somebody holds open reports IN_ATTRIB only.
_GONE = IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED
_FILE = IN_MODIFY | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF
_DIRECTORY = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_CLOSE_WRITE | IN_DELETE_SELF | IN_MOVE_SELF

_EVENT = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _open_inotify() -> int:
    """An inotify instance, or -1 if there is none to be had."""
    if _libc is None:
        return -1
    fd: int = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    if fd < 0:
        reason = os.strerror(ctypes.get_errno())
        logger.warning("log: no inotify (%s): files are looked at instead; see fs.inotify.max_user_instances", reason)
    return fd


def _add_watch(inotify: int, path: Path) -> int | None:
    """None if the path is not there, or the kernel watches too many already."""
    assert _libc is not None
    mask = _DIRECTORY if path.is_dir() else _FILE
    watch: int = _libc.inotify_add_watch(inotify, os.fsencode(path), ctypes.c_uint32(mask))
    if watch >= 0:
        return watch
    code = ctypes.get_errno()
    if code == errno.ENOSPC:
        logger.warning("log: %s is looked at instead of watched; see fs.inotify.max_user_watches", path)
    elif code not in (errno.ENOENT, errno.ENOTDIR):
        raise OSError(code, os.strerror(code), str(path))
    return None


def _remove_watch(inotify: int, watch: int) -> None:
    assert _libc is not None
    _libc.inotify_rm_watch(inotify, watch)  # It may be gone already.


def _events(data: bytes) -> Iterator[tuple[int, int]]:
    position = 0
    while position < len(data):
        watch, mask, _, name_bytes = _EVENT.unpack_from(data, position)
        yield watch, mask
        position += _EVENT.size + name_bytes
