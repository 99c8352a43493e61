"""Importing penstock, or asking for help, is quick and starts nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import penstock

HEAVY = {"pyspark", "pandas", "py4j"}
STARTS = {
    "import": "import penstock",
    "help": "import sys; sys.argv = ['penstock', '--help']; from penstock.cli import main; main()",
}
CLIENTS = ["import penstock.log.folder_log", "import penstock.kafka.log"]
"""Programs that only produce and consume need no Spark."""
SECONDS_MAX = 0.5


@pytest.fixture(params=[*STARTS])
def start(request: pytest.FixtureRequest) -> str:
    return STARTS[request.param]


@pytest.mark.parametrize("code", [*STARTS.values(), *CLIENTS])
def test_start_imports_nothing_heavy(code: str) -> None:
    answer = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True
    )
    # A line reads "import time: self | cumulative | name", the name indented by depth.
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in answer.stderr.splitlines()}
    assert "penstock" in imported
    assert imported & HEAVY == set()


def test_start_runs_no_java(start: str, tmp_path: Path) -> None:
    trap = tmp_path / "java"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    trap.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("JAVA_HOME", None)
    subprocess.run([sys.executable, "-c", start], env=environment, capture_output=True, check=True)
    assert not (tmp_path / "started").exists()


@pytest.mark.timing
def test_start_answers_within_half_a_second(start: str) -> None:
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", start], capture_output=True, check=True)
        seconds.append(time.perf_counter() - began)
    # The quickest: the others tell how busy the machine is.
    assert min(seconds) < SECONDS_MAX, seconds


def test_all_names_what_is_really_there() -> None:
    public = {name: getattr(penstock, name) for name in dir(penstock) if not name.startswith("_")}
    ours = {name for name, value in public.items() if getattr(value, "__module__", "").startswith("penstock")}
    assert ours | {"agg"} == {name for name in penstock.__all__ if not name.startswith("_")}


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Consumr"):
        _ = penstock.Consumr
