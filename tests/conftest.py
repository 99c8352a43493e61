"""Shared fixtures and hooks: marks, one Spark session per process, one of each server per run, the shared cases."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests.folder_times import FolderTimes
from tests.postgresql import own_postgresql, postgresql
from tests.seeds import dice, seed
from tests.services.connector import connector
from tests.services.kafka import kafka, kafka3, other_kafka
from tests.services.spark_cluster import spark_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "connector", "dice", "kafka", "kafka3", "other_kafka", "own_postgresql", "postgresql", "seed", "spark_cluster",
]  # fmt: skip

# The gate tries the same examples each time; `make test-long` tries others. A busy machine is no reason to fail.
hypothesis.settings.register_profile("same", deadline=None, derandomize=True, database=None)
hypothesis.settings.register_profile("random", deadline=None, print_blob=True)
hypothesis.settings.load_profile("same")

ROOT = Path(__file__).parent.parent
SLOWER_MARKS = ("spark", "system", "services", "long", "timing")
SLOWER_TIMEOUT_SECONDS = 600
LONG_TIMEOUT_SECONDS = 1800
DRIVERS = pytest.mark.xdist_group("drivers")
"""For tests with Spark that mostly wait for drivers in processes of their own: the other worker runs them."""
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m"
"""A JVM that lives for minutes is not worth optimising: most of its time would go into its own compiler. Its code needs
room all the same: with the 48 MiB that this compiler alone is given, all tests with Spark failed once it was full."""
os.environ.setdefault("SPARK_SUBMIT_OPTS", JAVA_OPTIONS)  # For the drivers of commands that tests run, too.


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-times", action="store_true", help="write tests/folder_times.json; see there")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # Workers report to the process that started them.
        config.pluginmanager.register(FolderTimes(config))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import files and folders without quick tests for `-m quick`: they would import Spark."""
    if config.option.markexpr != "quick":
        return None
    files = [*collection_path.rglob("test_*.py")] if collection_path.is_dir() else [collection_path]
    are_slower = [not module_marks(each).isdisjoint(SLOWER_MARKS) for each in files if each.match("test_*.py")]
    return True if are_slower and all(are_slower) else None


def module_marks(path: Path) -> set[str]:
    """The marks that a file gives to all its tests."""
    assigned = [each for each in ast.parse(path.read_text()).body if isinstance(each, ast.Assign)]
    marked = [each.value for each in assigned if ast.unparse(each.targets[0]) == "pytestmark"]
    return {node.attr for value in marked for node in ast.walk(value) if isinstance(node, ast.Attribute)}


@pytest.hookimpl(tryfirst=True)  # Before xdist reads the groups and -m the marks.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what has no mark as quick, give slower tests more time, and keep tests that share a server in one worker."""
    for item in items:
        marks = {each for each in SLOWER_MARKS if item.get_closest_marker(each)}
        if not marks:
            item.add_marker(pytest.mark.quick)
        elif not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LONG_TIMEOUT_SECONDS if "long" in marks else SLOWER_TIMEOUT_SECONDS))
        group = next((each for each in ("services", "spark") if each in marks), None)
        if group and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A temporary folder that all test processes of this run share."""
    base = tmp_path_factory.getbasetemp()
    return base if worker_id == "master" else base.parent


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The Spark session of this test process, with two cores. A test that asks for it carries the mark `spark`."""
    from penstock.settings import SparkSettings
    from penstock.spark import session

    started = session(SparkSettings(master="local[2]", shuffle_partitions=2), name="penstock-tests")
    yield started
    started.stop()


@pytest.fixture(scope="session")
def cases() -> Path:
    """The folder of cases that nobody here wrote; the test is skipped where it is not beside the repository."""
    folder = ROOT.parent / "shared" / "cases"
    if not folder.is_dir():
        pytest.skip("the folder ../shared/cases is not beside the repository")
    return folder
