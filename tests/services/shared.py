"""A server that all test processes of a run share: the first one starts it, and it ends with the last one."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

# Waits until no process holds the file's lock, then stops the server. It outlives the tests, however they end.
LAST_ONE_OUT = """
import fcntl, os, subprocess, sys
description, users, *stop = sys.argv[1:]
with open(users, "a") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        os.unlink(description)
    finally:
        subprocess.run(stop)
"""


@contextmanager
def shared(folder: Path, name: str, start: Callable[[], tuple[str, Sequence[str]]]) -> Iterator[str]:
    """Keep the server `name` running, and yield its description.

    `folder` is the same for all processes of the run. `start` starts the server and returns the description and the
    command that stops it. The command runs once no process uses the server any more, even if they were killed.
    """
    description, users = folder / f"{name}.description", folder / f"{name}.users"
    with users.open("a") as using:
        with (folder / f"{name}.starting").open("a") as starting:
            fcntl.flock(starting, fcntl.LOCK_EX)
            fcntl.flock(using, fcntl.LOCK_SH)  # Waits for a server that is being stopped.
            if not description.exists():
                text, stop = start()
                description.write_text(text)
                _run_alone([sys.executable, "-S", "-c", LAST_ONE_OUT, str(description), str(users), *stop])
        yield description.read_text()


def _run_alone(command: Sequence[str]) -> None:
    null = subprocess.DEVNULL
    subprocess.Popen(command, stdin=null, stdout=null, stderr=null, start_new_session=True)
