"""The tests notice defects: each one is planted in a copy of the product, and its test has to fail there."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.mutants.planted import DEFECTS, Defect

TESTS_PASSED, TESTS_FAILED = 0, 1


def test_every_defect_can_be_planted(tmp_path: Path) -> None:
    for number, defect in enumerate(DEFECTS):
        defect.plant(copied(tmp_path / str(number), [defect.file]))


@pytest.mark.long
def test_copy_without_a_defect_passes(tmp_path: Path) -> None:
    done = run_tests(copied(tmp_path), "tests/upkeep/test_merge.py")
    assert done.returncode == TESTS_PASSED, done.stdout


@pytest.mark.long
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda each: each.name.replace(" ", "_"))
def test_defect_is_noticed(defect: Defect, tmp_path: Path) -> None:
    source = copied(tmp_path)
    defect.plant(source)
    done = run_tests(source, defect.caught_by)
    assert done.returncode == TESTS_FAILED, done.stdout
    noticed = [line for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    assert noticed, done.stdout
    print(f"{defect.name}: {noticed[0]}")


def copied(folder: Path, files: list[str] | None = None) -> Path:
    """A copy of the product's source, or of some files of it."""
    source = folder / "src"
    if files is None:
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        return source
    for file in files:
        path = source / "penstock" / file
        path.parent.mkdir(parents=True)
        shutil.copy(ROOT / "src" / "penstock" / file, path)
    return source


def run_tests(source: Path, chosen: str) -> subprocess.CompletedProcess[str]:
    """Runs tests against that source, up to the first failure."""
    outer = ("PYTEST_", "PENSTOCK_TEST_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(outer)}
    options = ["-x", "-q", "-n0", "-rf", "-p", "no:cacheprovider", "-m", "not long and not timing"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *shlex.split(chosen)],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=False,
    )
