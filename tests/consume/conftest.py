"""A log with a topic of two partitions, and a clock that stands still."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic
from penstock.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> Iterator[FolderLog]:
    with FolderLog(tmp_path, background=False, clock=clock) as made:
        yield made


@pytest.fixture
def orders(log: FolderLog) -> FolderTopic:
    return log.create("orders", "n bigint", partitions=2)
