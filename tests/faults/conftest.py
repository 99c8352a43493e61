"""Fixtures of the fault tests: a folder in memory, and reasons to skip."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """A folder where files cost no disk: for tests that make many thousands of them. No test of durability."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    directory = Path(tempfile.mkdtemp(prefix="penstock-faults-", dir=MEMORY))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def root_user() -> None:
    """Skip the test for users who may not mount."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system: run these tests as root")
