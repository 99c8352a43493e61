"""Ctrl-C in `penstock verify`: one line, and nothing is left, whenever it comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.log.folder_log import FolderLog
from tests.conftest import DRIVERS
from tests.eventually import eventually

pytestmark = [pytest.mark.spark, DRIVERS]

LINE = "stopped: nothing was compared to the end, and nothing was changed\n"
APP = """
import os
import pathlib
import time

from pyspark.sql import functions as F
from penstock import Pipeline

here = pathlib.Path(__file__).parent
if (here / "wait").exists():
    (here / "imported").touch()
    time.sleep(600)

app = Pipeline("web")
app.topic("access", "url string, n bigint")


def slow(n):
    (here / ("elsewhere" if os.environ["PYTHONHASHSEED"] == "4711" else "computing")).touch()
    if (here / "slow").exists() or os.environ["PYTHONHASHSEED"] == "4711":
        time.sleep(600)
    return n


@app.view(key="n")
def slowly(access):
    return access.select(F.udf(slow, "bigint")("n").alias("n"))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with FolderLog(tmp_path / "log", background=False) as log:
        log.create("access", "url string, n bigint").append(pa.table({"url": ["/"], "n": [1]}))
    (tmp_path / "stopped_app.py").write_text(APP)
    (tmp_path / "tmp").mkdir()
    return tmp_path


def java_runs(folder: Path, process: subprocess.Popen[str]) -> bool:
    return any("SparkSubmit" in each for each in _group(process))


def exists(name: str) -> Callable[[Path, subprocess.Popen[str]], bool]:
    return lambda folder, process: (folder / name).exists()


def has_scratch(folder: Path, process: subprocess.Popen[str]) -> bool:
    return any((folder / "tmp").glob("penstock-verify-*"))


@pytest.mark.parametrize(
    ("given", "is_reached"),
    [
        ("wait", exists("imported")),
        (None, java_runs),
        ("slow", exists("computing")),
        pytest.param(None, has_scratch, marks=pytest.mark.long),
        pytest.param(None, exists("elsewhere"), marks=pytest.mark.long),
    ],
    ids=["the file is imported", "Java starts", "a view is computed", "it compiles", "a child computes"],
)
def test_ctrl_c_ends_verify_with_one_line_and_leaves_nothing(
    folder: Path, given: str | None, is_reached: Callable[[Path, subprocess.Popen[str]], bool]
) -> None:
    if given is not None:
        (folder / given).touch()
    with _verifying(folder) as process:

        def is_there() -> bool:
            assert process.poll() is None, process.communicate()
            return is_reached(folder, process)

        eventually(is_there, seconds=600)
        process.send_signal(signal.SIGINT)
        told, said = process.communicate()  # Ends only once all that share its output have ended.
        assert (process.returncode, told, said) == (130, "", LINE)
        eventually(lambda: not _of_folder(folder))
        assert [*(folder / "tmp").glob("penstock-verify-*")] == []
        assert [*(folder / "tmp").glob("tmp*")] == []


class _verifying:  # noqa: N801
    """A run of `penstock verify`, the leader of a session, which is killed at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> subprocess.Popen[str]:
        words = ["verify", str(self._folder / "stopped_app.py"), "--log", str(self._folder / "log"), "--cuts", "0"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # What marks all that it starts, however it is detached.
            env={**os.environ, "TMPDIR": str(self._folder / "tmp"), "PENSTOCK_SPARK_MASTER": "local[2]"},
        )
        return self._process

    def __exit__(self, *_: object) -> None:
        for number in _of_folder(self._folder):
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        self._process.wait()


def _of_folder(folder: Path) -> list[int]:
    """The processes that have this folder's TMPDIR, so all that verify has started."""
    marks = str(folder / "tmp").encode()
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_dead = (each / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            if not is_dead and b"TMPDIR=" + marks in (each / "environ").read_bytes():
                found.append(int(each.name))
    return found


def _group(process: subprocess.Popen[str]) -> Iterator[str]:
    """The commands of the processes in its session."""
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.getsid(int(each.name)) == process.pid:
                yield (each / "cmdline").read_bytes().decode()
