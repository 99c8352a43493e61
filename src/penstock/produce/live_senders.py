"""What happens to producers that nobody closed, when their process ends or forks.

At the end of the process everything that was sent is still taken to disk, for at most `EXIT_SECONDS`; what could not
be is told on the standard error. A child made by fork has no sender threads, so its producers refuse to send.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 (Arrow imports it at first use, which is refused while a process ends.)
import os
import sys
import threading
from functools import cache
from time import monotonic
from typing import Protocol
from weakref import WeakSet

from penstock.errors import PenstockError

EXIT_SECONDS = 10.0


class LiveSender(Protocol):
    """What is asked of a sender here."""

    def close(self, timeout: float | None = None) -> None: ...

    def forked(self) -> None: ...


_live: WeakSet[LiveSender] = WeakSet()
_lock = threading.Lock()


def add(sender: LiveSender) -> None:
    """This sender has something to lose from now on."""
    with _lock:
        _live.add(sender)
    _close_in_worker_processes()


def remove(sender: LiveSender) -> None:
    """This sender is closed."""
    with _lock:
        _live.discard(sender)


def close_all() -> None:
    """Takes to disk what was sent. Never raises, and never waits longer than `EXIT_SECONDS` in all."""
    with _lock:
        senders = list(_live)
    deadline = monotonic() + EXIT_SECONDS
    for sender in senders:
        try:
            sender.close(max(deadline - monotonic(), 0.0))
        except PenstockError as error:
            print(f"penstock: at the end of the process: {error}", file=sys.stderr)
        except Exception as error:
            print(f"penstock: at the end of the process: {error!r}", file=sys.stderr)


@cache
def _close_in_worker_processes() -> None:
    """Processes of `multiprocessing` end without atexit, but run its own finalizers."""
    multiprocessing = sys.modules.get("multiprocessing.util")
    if multiprocessing is not None:
        multiprocessing.Finalize(None, close_all, exitpriority=10)


def _forked() -> None:
    global _lock  # noqa: PLW0603 (another thread of the parent may have held it)
    _lock = threading.Lock()
    for sender in list(_live):
        sender.forked()
    _live.clear()


atexit.register(close_all)
os.register_at_fork(after_in_child=_forked)
