"""Which process this is, and whether another one still lives: by its pid and the moment it began.

A pid alone is not enough: it is used again. On systems without /proc nothing is known of other processes, and only
the lease counts.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

ProcessState = Literal["running", "stopped", "gone", "unknown"]


@dataclass(frozen=True)
class Process:
    """One process in the world."""

    pid: int
    start: int
    """Clock ticks from boot to its start; 0 where that is not known."""
    host: str
    boot: str
    """This boot of the machine and this space of pids: containers have their own. Empty where that is not known."""

    def state(self) -> ProcessState:
        """What it is doing now; `unknown` if it runs on another machine or in another container."""
        if not self.boot or (self.host, self.boot) != (socket.gethostname(), _boot()):
            return "unknown"
        seen = _stat(self.pid)
        if seen is None or seen[1] != self.start or seen[0] in "ZX":
            return "gone"
        return "stopped" if seen[0] in "Tt" else "running"


def this_process() -> Process:
    """The one that asks."""
    seen = _stat(os.getpid())
    return Process(os.getpid(), seen[1] if seen else 0, socket.gethostname(), _boot() if seen else "")


def is_stopped(pid: int) -> bool:
    """Whether this process of this machine is stopped (SIGSTOP, Ctrl-Z, a debugger)."""
    seen = _stat(pid)
    return seen is not None and seen[0] in "Tt"


def write_lock_holder(database: str) -> int | None:
    """The pid of the process that holds the write lock of a SQLite database in WAL mode, if it can be told.

    The lock is a POSIX lock on byte 120 of the -shm file (WAL_WRITE_LOCK in SQLite's file format), listed by Linux.
    """
    with suppress(OSError, ValueError):
        inode = os.stat(f"{database}-shm").st_ino
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()  # 1: POSIX ADVISORY WRITE 4711 08:01:1234 120 120; with -> in front if it waits.
            if "->" not in words and words[1] == "POSIX" and words[3] == "WRITE":
                first, last = int(words[6]), words[7]
                reaches = last == "EOF" or int(last) >= 120
                if int(words[5].rpartition(":")[2]) == inode and first <= 120 and reaches:
                    return int(words[4])
    return None


def _stat(pid: int) -> tuple[str, int] | None:
    """State and start of a process of this machine; None if there is none, or no /proc."""
    try:
        # The name of the program stands in parentheses and may hold anything, also a parenthesis.
        words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return words[0].decode(), int(words[19])
    except (OSError, IndexError, ValueError):
        return None


@cache
def _boot() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""
