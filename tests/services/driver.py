"""A driver that outlives its runs: one process, one JVM and one place on the cluster for command after command.

Starting those takes longer than all the steps of a test. What is run is the command line itself, in the folder of its
penstock.toml; Spark is set up by the first one.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from tests.conftest import ROOT
from tests.eventually import eventually

COMMAND_SECONDS = 480
"""The limit for a whole command, with the start of a JVM and a connection to the cluster."""


class Driver:
    """The process, which is started with its first command, and again by the first one after it was killed."""

    def __init__(self, folder: Path, secret: str) -> None:
        self._printed = folder / "driver.txt"
        self._secret = secret
        self._process: subprocess.Popen[str] | None = None
        self._result = folder / "result.txt"
        self._printed_before = 0

    def begin(self, folder: Path, *command: str) -> None:
        """Runs a command of ours in a folder. One at a time."""
        self._result.unlink(missing_ok=True)
        self._process = self._process or self._start()
        self._printed_before = self._printed.stat().st_size
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([str(folder), *command]) + "\n")
        self._process.stdin.flush()

    def finish(self) -> str:
        """What the command printed, which must succeed."""
        eventually(lambda: not self.is_busy, explain=self.said, seconds=COMMAND_SECONDS)
        ended = self._result.read_text() if self._result.exists() else "in the middle"
        assert ended == "0", f"it ended with {ended}; {self.said()}"
        return self.said()

    def do(self, folder: Path, *command: str) -> str:
        self.begin(folder, *command)
        return self.finish()

    @property
    def is_busy(self) -> bool:
        """Whether a command has begun and not ended."""
        return self._process is not None and self._process.poll() is None and not self._result.exists()

    @property
    def is_gone(self) -> bool:
        """Whether it was killed, or never started."""
        return self._process is None

    def kill(self) -> None:
        """SIGKILL, for the process and its JVM."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
            self._process = None

    def said(self) -> str:
        """What was printed since the last command began."""
        return self._printed.read_bytes()[self._printed_before :].decode(errors="replace")

    def _start(self) -> subprocess.Popen[str]:
        kept = {name: value for name, value in os.environ.items() if name not in ("PYSPARK_PYTHON", "SPARK_LOCAL_IP")}
        with open(self._printed, "w") as printed:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.services.driver", str(self._result)],
                cwd=ROOT,
                env={**kept, "PENSTOCK_SPARK_SECRET": self._secret},
                stdin=subprocess.PIPE,
                stdout=printed,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )


def serve(result: Path) -> None:
    """Runs what it is told, and writes down how each ended."""
    for line in sys.stdin:
        folder, *command = json.loads(line)
        os.chdir(folder)
        ended = result.with_suffix(".new")
        ended.write_text(str(_run(command)))
        ended.rename(result)


def _run(command: Sequence[str]) -> object:
    from penstock.cli import app

    try:
        return app(list(command), standalone_mode=False) or 0
    except SystemExit as ended:
        return ended.code
    except BaseException:
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
