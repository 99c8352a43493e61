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

# Ports from here up are also given to connections that ask for none, and a server that restarts could lose its own.
PORTS = range(20_000, 32_000)

# It reads from a pipe that only the starting process holds open: the end of that, in whatever way, is the end of input.
WATCHDOG = "import os, signal, sys; sys.stdin.buffer.read(); os.killpg(int(sys.argv[1]), signal.SIGKILL)"


class Service:
    """One server process and all that it starts itself; what they print goes to a file."""

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
        """SIGKILL for the process and all that it started, as a machine dies that loses its power."""
        # First the watchdog: the number of a group that is gone may come to mean another one.
        self._watchdog.kill()
        self._watchdog.communicate()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def end(self, timeout_seconds: float = 30) -> None:
        """Asks the process to end, and kills what has not ended by then."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_seconds)
        self.kill()

    def said(self) -> str:
        """The end of what was printed, for a message."""
        return (
            f"{self.name} (exit code {self._process.poll()}) said:\n{self.output.read_text(errors='replace')[-3000:]}"
        )


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nothing listens on, and that nothing is given by chance."""
    found: list[int] = []
    # Test processes start their servers side by side: each looks from another place on.
    start = int.from_bytes(os.urandom(4)) % len(PORTS)
    for step in range(len(PORTS)):
        port = PORTS[(start + step) % len(PORTS)]
        if _is_free(port):
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError(f"fewer than {count} free ports from {PORTS.start} to {PORTS.stop}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
