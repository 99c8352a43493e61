"""A server as a process group of its own, which never outlives the process that started it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

# It reads from a pipe that only the starting process holds open, and so sees the end of input when that process ends.
WATCHDOG = "import os, signal, sys; sys.stdin.buffer.read(); os.killpg(int(sys.argv[1]), signal.SIGKILL)"


class Service:
    """A server process and all that it starts itself; what they print goes to a file."""

    def __init__(self, name: str, command: Sequence[str], output: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.output = output
        with open(output, "ab") as printed:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._watchdog = subprocess.Popen(
            [sys.executable, "-S", "-c", WATCHDOG, str(self._process.pid)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """SIGKILL for the process and all that it started, as when a machine loses power."""
        # The watchdog goes first: later it might kill another group that was given the same number.
        self._watchdog.kill()
        self._watchdog.communicate()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def said(self) -> str:
        """The end of what was printed, for a message."""
        return (
            f"{self.name} (exit code {self._process.poll()}) said:\n{self.output.read_text(errors='replace')[-3000:]}"
        )


def reserve_port(port: int = 0) -> socket.socket:
    """Reserves a port of loopback, by default one the kernel chooses, until the returned socket is closed.

    The socket is bound but does not listen: connections are refused, and the kernel gives the port to nobody else. A
    server that binds it with SO_REUSEADDR, as all Java servers do, gets it, and gets it again after a restart.
    """
    reserved = socket.socket()
    try:
        reserved.bind(("127.0.0.1", port))  # Without SO_REUSEADDR, so it cannot share the port of another process.
    except OSError:
        reserved.close()
        raise
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return reserved


def port_of(reserved: socket.socket) -> int:
    """The port a socket is bound to."""
    return int(reserved.getsockname()[1])
