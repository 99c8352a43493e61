"""What executors need is sent to them, and what cannot be sent is asked for by name, before the first step."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.services.spark_cluster import SparkCluster

pytestmark = [pytest.mark.services, pytest.mark.spark]

# Says that it is another Python, once all is imported that looks at that.
OTHER_VERSION = """
import collections, runpy, sys
import pyspark.worker
sys.version_info = collections.namedtuple("V", "major minor micro releaselevel serial")(3, 99, 0, "final", 0)
sys.argv = sys.argv[2:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""

# One process for all: after an error there is no session, and the next one starts anew in the same JVM.
SCRIPT = """
import json, sys
from dataclasses import replace
from penstock.errors import ClusterError
from penstock.modes.realtime_spark import cores_there
from penstock.settings import load_settings
from penstock.spark import executors, session

def where(batches):
    import penstock, pyarrow
    for _ in batches:
        yield pyarrow.RecordBatch.from_pydict({"file": [penstock.__file__]})

settings = load_settings().spark
for case, conf in json.loads(sys.argv[1]).items():
    # No cluster gives executors that are too large, however long one waits; others get them in time.
    executors.check_executors.__defaults__ = (2 if case == "too large" else 300,)
    try:
        spark = session(replace(settings, conf={**settings.conf, **conf}))
    except ClusterError as error:
        print(json.dumps([case, type(error).__name__, str(error)]), flush=True)
    else:
        if case == "one core":
            print(json.dumps([case, "fit", str(cores_there(spark))]), flush=True)
            spark.stop()
            continue
        print(json.dumps([case, "fit", spark.range(1).mapInArrow(where, "file string").first()[0]]), flush=True)
        spark.stop()
"""


def python_without(folder: Path, *names: str, code: str = "") -> str:
    """A Python with all packages that are here, except those; `code` runs instead of the module that is asked for."""
    packages = folder / "packages"
    packages.mkdir(parents=True)
    for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for entry in Path(place).iterdir():
            if not any(name in entry.name for name in names):
                (packages / entry.name).symlink_to(entry)
    (folder / "instead.py").write_text(code)
    program = folder / "python"
    instead = f'"{folder}/instead.py"' if code else ""
    program.write_text(
        f'#!/bin/sh\nexport PYTHONPATH="$PYTHONPATH:{packages}"\n'
        f'exec "{getattr(sys, "_base_executable", sys.executable)}" -S {instead} "$@"\n'
    )
    program.chmod(0o755)
    return str(program)


@pytest.fixture(scope="module")
def answers(spark_cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    folder = tmp_path_factory.mktemp("pythons")
    cases = {
        "bare": {"spark.pyspark.python": python_without(folder / "bare", "penstock")},
        # Spark would say that 8 tasks are a good number, and start them on that core one after the other.
        "one core": {"spark.cores.max": "1", "spark.default.parallelism": "8"},
        "no pyarrow": {"spark.pyspark.python": python_without(folder / "arrow", "penstock", "pyarrow")},
        "another": {"spark.pyspark.python": python_without(folder / "another", "penstock", code=OTHER_VERSION)},
        "no python": {"spark.pyspark.python": str(folder / "nowhere" / "python")},
        "too large": {"spark.executor.memory": "900g"},
        "wrong secret": {"spark.authenticate.secret": "guessed"},
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(cases)],
        env={**os.environ, **spark_cluster.settings()},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {case: (kind, text) for case, kind, text in lines}


def test_penstock_itself_is_sent(answers: dict[str, tuple[str, str]]) -> None:
    kind, file = answers["bare"]
    assert kind == "fit", file
    assert "/worker-" in file


def test_cores_are_counted_and_not_what_is_asked_of_them(answers: dict[str, tuple[str, str]]) -> None:
    assert answers["one core"] == ("fit", "1")


def test_a_missing_package_is_named_with_its_machine(answers: dict[str, tuple[str, str]]) -> None:
    kind, text = answers["no pyarrow"]
    assert kind == "ExecutorUnfit", text
    assert text.startswith(
        f"spark: the executors on {socket.gethostname()} cannot run this pipeline: pyarrow is missing"
    )
    assert "-m pip install pyarrow" in text


def test_another_version_of_python_is_named_with_its_machine(answers: dict[str, tuple[str, str]]) -> None:
    kind, text = answers["another"]
    assert kind == "ExecutorUnfit", text
    assert text.startswith("spark: the executors on 127.0.0.1 cannot run this pipeline: it is Python 3.99")
    assert f"expected: Python {sys.version_info.major}.{sys.version_info.minor}" in text


def test_a_missing_python_is_named_with_its_machine(answers: dict[str, tuple[str, str]]) -> None:
    kind, text = answers["no python"]
    assert kind == "ExecutorUnfit", text
    assert text.startswith("spark: the executors on 127.0.0.1 cannot run this pipeline: there is no such program")
    assert "nowhere/python" in text


def test_a_cluster_that_gives_nothing_is_an_error(answers: dict[str, tuple[str, str]]) -> None:
    kind, text = answers["too large"]
    assert kind == "NoExecutors", text
    assert "asked for: executors with 900g of memory" in text


def test_a_wrong_secret_is_not_let_in(answers: dict[str, tuple[str, str]]) -> None:
    kind, text = answers["wrong secret"]
    assert kind == "ClusterUnreachable", text
    assert "its master answers, but does not take this application" in text
