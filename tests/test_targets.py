"""The test targets: what they collect, what they report, and the time budget of the folders."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import ROOT, module_marks
from tests.folder_times import BUDGET_SECONDS, problems
from tests.run import REPORTS, TARGETS, run

# A plugin for pytest that fails the collection if a test module brought Spark in.
NO_SPARK = """
import sys

def pytest_collection_finish(session):
    assert not session.testsfailed
    assert "pyspark" not in sys.modules, "a file with quick tests imports Spark"
"""


def collect(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "no_spark.py").write_text(NO_SPARK)
    code = f"import sys, pytest; sys.path.insert(0, {str(folder)!r}); sys.exit(pytest.main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "--collect-only", "-q", "-p", "no_spark", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_collecting_quick_tests_imports_no_spark(tmp_path: Path) -> None:
    found = collect(tmp_path, "-m", "quick")
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]


def test_collecting_a_spark_test_is_noticed(tmp_path: Path) -> None:
    found = collect(tmp_path, "-m", "spark", "tests/plans/test_fold.py")
    assert "a file with quick tests imports Spark" in found.stdout + found.stderr


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("pytestmark = pytest.mark.spark", {"spark"}),
        ("pytestmark = [pytest.mark.spark, pytest.mark.timeout(9)]", {"spark", "timeout"}),
        ("other = pytest.mark.spark", set()),
    ],
)
def test_marks_of_a_file_are_read_without_importing_it(tmp_path: Path, text: str, marks: set[str]) -> None:
    (tmp_path / "test_x.py").write_text(f"import nowhere\n{text}\n")
    assert module_marks(tmp_path / "test_x.py") & {"spark", "timeout"} == marks


def test_every_mark_belongs_to_a_target() -> None:
    """A test runs in exactly one target, whatever its marks."""
    for marks in ("", "quick", "spark", "system", "services", "long", "timing", "services long", "spark services long"):
        given = {name: name in marks.split() for name in ("services", "long", "timing")}
        chosen = [name for name, each in TARGETS.items() if name != "quick" and eval(each.marks, {}, given)]
        assert len(chosen) == 1, (marks, chosen)


def test_a_folder_over_its_budget_is_named() -> None:
    record = {"tests/log": {"seconds": BUDGET_SECONDS + 1.0, "tests": 4}, "tests/cli": {"seconds": 5.0, "tests": 4}}
    assert problems(record, Counter({"tests/log": 4, "tests/cli": 5})) == [
        "tests/log takes 121 s of `make test`, over the budget of 120 s: move it or make it faster"
    ]


@pytest.mark.parametrize("counts", [{"tests/log": 6}, {"tests/log": 4, "tests/new": 1}])
def test_a_folder_that_has_grown_is_recorded_again(counts: dict[str, int]) -> None:
    [problem] = problems({"tests/log": {"seconds": 1.0, "tests": 4}}, Counter(counts))
    assert "make test-record" in problem


FLAKY = """
import pathlib
import pytest

pytestmark = pytest.mark.services

def test_flaky():
    seen = pathlib.Path("seen")
    is_first = not seen.exists()
    seen.touch()
    assert not is_first

def test_fine():
    pass
"""


def test_a_service_test_that_fails_once_is_flaky(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    services\n")
    (tmp_path / "test_x.py").write_text(FLAKY)
    assert run("services", [], tmp_path) == 0
    printed = capfd.readouterr().out
    assert "flaky: 1 tests failed and then passed" in printed
    assert "test_x::test_flaky" in printed
    assert (tmp_path / REPORTS / "services.xml").exists()


def test_tests_of_one_group_run_in_one_worker(tmp_path: Path) -> None:
    """Some versions of pytest and pytest-xdist ignore groups silently."""
    (tmp_path / "test_x.py").write_text(
        "import os, pathlib, pytest\n\n"
        "@pytest.mark.xdist_group('one')\n"
        "@pytest.mark.parametrize('number', range(20))\n"
        "def test_x(number):\n"
        "    pathlib.Path(f'{os.getpid()}.pid').touch()\n"
    )
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", str(tmp_path)]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 0
    assert len([*tmp_path.glob("*.pid")]) == 1


def test_a_gate_test_that_fails_once_fails_the_gate(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    services\n")
    (tmp_path / "test_x.py").write_text(FLAKY.replace("pytestmark", "unused"))
    assert run("gate", ["-n", "0"], tmp_path) != 0
