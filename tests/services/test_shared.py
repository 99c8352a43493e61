"""A shared server: started once, stopped after its last user, however that user ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT
from tests.eventually import eventually
from tests.services.shared import shared

# Prints the description, then uses the server until its input ends.
USER = """
import pathlib, sys
from tests.services.shared import shared

folder = pathlib.Path(sys.argv[1])

def start():
    with (folder / "starts").open("a") as starts:
        starts.write("x")
    return "here", ["touch", str(folder / "stopped")]

with shared(folder, "server", start) as description:
    print(description, flush=True)
    sys.stdin.read()
"""


def user(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", USER, str(folder)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_users_at_the_same_time_share_one_server(tmp_path: Path) -> None:
    users = [user(tmp_path) for _ in range(3)]
    for each in users:
        assert each.stdout is not None
        assert each.stdout.readline() == "here\n"
    assert (tmp_path / "starts").read_text() == "x"
    for each in users[:2]:
        each.communicate()
    assert not (tmp_path / "stopped").exists()
    users[2].kill()
    users[2].communicate()
    eventually((tmp_path / "stopped").exists)


def test_a_server_that_was_stopped_is_started_again(tmp_path: Path) -> None:
    for starts in (1, 2):
        user(tmp_path).communicate()
        eventually((tmp_path / "stopped").exists)
        (tmp_path / "stopped").unlink()
        assert (tmp_path / "starts").read_text() == "x" * starts


def test_a_server_that_does_not_start_is_tried_again_by_the_next(tmp_path: Path) -> None:
    def fails() -> tuple[str, list[str]]:
        raise OSError("no room")

    try:
        with shared(tmp_path, "server", fails):
            raise AssertionError("it started")
    except OSError:
        pass
    user(tmp_path).communicate()
    assert (tmp_path / "starts").read_text() == "x"
