"""How long each folder of tests takes, printed after a run, and the budget that `make lint` holds the folders to.

A run on a quiet machine with `--record-times` writes tests/folder_times.json. Lint reads that file and measures
nothing, so a busy machine cannot fail it.
"""

from __future__ import annotations

import ast
import json
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
RECORD = TESTS / "folder_times.json"
BUDGET_SECONDS = 120
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
GROWTH_MAX = 1.25
"""A folder with this many times the tests it had when it was recorded must be recorded again."""


class FolderTimes:
    """A pytest plugin that adds up set-up, call and teardown of all tests of a folder."""

    def __init__(self, config: pytest.Config) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._is_recorded = bool(config.getoption("--record-times"))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[folder_of(report.nodeid)] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
        terminalreporter.section("seconds by folder")
        for folder, seconds in sorted(self._seconds.items(), key=lambda each: -each[1]):
            terminalreporter.write_line(f"{seconds:8.1f} s  {folder}")
        if not self._is_recorded:
            return
        if exitstatus != pytest.ExitCode.OK or terminalreporter.config.option.keyword:
            terminalreporter.write_line(f"{RECORD.name} stays as it was: it records complete runs that passed")
        else:
            record = {
                folder: {"seconds": round(self._seconds[folder], 1), "tests": count}
                for folder, count in sorted(test_counts().items())
            }
            RECORD.write_text(json.dumps(record, indent=2) + "\n")


def folder_of(nodeid: str) -> str:
    """The folder of a test, such as tests/log."""
    return str(Path(nodeid.partition("::")[0]).parent)


def test_counts() -> Counter[str]:
    """How many test functions each folder has."""
    counts: Counter[str] = Counter()
    for path in TESTS.rglob("test_*.py"):
        functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, FUNCTIONS)]
        folder = folder_of(str(path.relative_to(TESTS.parent)))
        counts[folder] += sum(each.name.startswith("test_") for each in functions)
    return counts


def problems(record: dict[str, dict[str, float]], counts: Counter[str]) -> list[str]:
    """What is wrong with the recorded durations, one sentence each."""
    found = []
    for folder, count in sorted(counts.items()):
        if folder not in record or count > GROWTH_MAX * record[folder]["tests"]:
            found.append(f"{folder} has grown since its duration was recorded: make test-record")
        elif record[folder]["seconds"] > BUDGET_SECONDS:
            took = f"{record[folder]['seconds']:.0f} s of `make test`, over the budget of {BUDGET_SECONDS} s"
            found.append(f"{folder} takes {took}: move it or make it faster")
    return found


if __name__ == "__main__":
    lines = problems(json.loads(RECORD.read_text()), test_counts())
    sys.exit("\n".join(lines) or 0)
