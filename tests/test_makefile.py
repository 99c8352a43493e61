"""The chores say what they are, and what is missing, in one sentence each."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "--no-print-directory", "-C", str(ROOT), *arguments]
    # A make that runs this test hands down its own flags and variables; they are not meant for the one started here.
    inherited = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    return subprocess.run(command, env={**inherited, **environment}, capture_output=True, text=True, check=False)


def test_make_alone_lists_every_chore_with_a_sentence() -> None:
    chores = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    answer = make()
    assert chores >= {"help", "venv", "demo", "test", "test-quick", "lint", "bench"}
    assert {line.split()[1] for line in answer.stdout.splitlines()} == chores
    assert all(line.endswith(".") for line in answer.stdout.splitlines())


@pytest.mark.parametrize("says", ["Python 3.8.18", "Python 2.7.18"])
def test_old_python_is_named_in_one_sentence(tmp_path: Path, says: str) -> None:
    old = tmp_path / "old-python"
    old.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{says}" && exit 0\nexit 1\n')
    old.chmod(0o755)
    answer = make("machine", f"PYTHON={old}")
    assert answer.returncode != 0
    assert answer.stderr.splitlines()[0].startswith(
        f"Penstock needs Python 3.11 or newer, and {old} is {says}: install"
    )


def test_missing_python_is_named_in_one_sentence() -> None:
    answer = make("machine", "PYTHON=no-such-python")
    assert answer.stderr.splitlines()[0].startswith(
        "Penstock needs Python 3.11 or newer, and no-such-python is missing"
    )


def test_missing_java_is_named_in_one_sentence() -> None:
    answer = make("machine", JAVA_HOME="/nowhere")
    assert answer.returncode != 0
    assert answer.stderr.splitlines()[0].startswith("Spark needs Java 17 or newer, and JAVA_HOME=/nowhere holds no")
