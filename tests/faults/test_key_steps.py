"""A process that dies at any step of rolls, sealing and retention forgets no idempotency key and loses no record."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.log import keys as keys_module
from penstock.log.folder_log import FolderLog
from penstock.log.folder_partition import FolderPartition
from penstock.log.producers import keyed_producer
from penstock.testing import ManualClock
from tests.log.rows import START_US, numbers_of, rows, small_topic

CHANGING = ("pwritev", "fdatasync", "fsync", "ftruncate", "unlink", "rename")
DAY = timedelta(days=1)


class Died(BaseException):
    """The process ends here."""


class Life:
    """Counts the calls that change files. At the one of this number the process dies, and changes nothing any more."""

    def __init__(self, patch: pytest.MonkeyPatch, dies_at: int | None, *, is_torn: bool) -> None:
        self.calls = 0
        self._dies_at = dies_at
        self._is_torn = is_torn
        for name in CHANGING:
            patch.setattr(os, name, self._counted(name, getattr(os, name)))

    @property
    def is_over(self) -> bool:
        return self._dies_at is not None and self.calls > self._dies_at

    def _counted(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self.calls += 1
            if self.calls - 1 == self._dies_at and self._is_torn and name == "pwritev":
                fd, [first, *_], position = arguments
                real(fd, [first[: len(first) // 2]], position)
            if self.is_over:
                raise Died
            return real(*arguments, **named)

        return call


def post(partition: FolderPartition, number: int) -> int:
    """Stores one record under a key of its own. Returns how many duplicates there were."""
    key = keyed_producer("sender", f"key {number}")
    return partition.append(rows([number]), producer=key, sequences=np.array([number])).duplicates


def live(root: Path, clock: ManualClock, acknowledged: dict[int, int]) -> None:
    """Posts for twelve days; rolls, seals and retains in between. Notes what was acknowledged, and when."""
    log = FolderLog(root, background=False, clock=clock)
    try:
        topic = small_topic(log, retention_bytes=6000, exist_ok=True)
        (partition,) = topic.partitions
        for number in range(24):
            assert post(partition, number) == 0
            acknowledged[number] = clock.now_us
            if number % 3 == 2:
                partition.roll()
            if number % 8 == 7:
                topic.seal()
                topic.retain()
            clock.move(DAY / 2)
        topic.seal(active=True)
    finally:
        with suppress(BaseException):
            log.close()


def check(root: Path, clock: ManualClock, acknowledged: dict[int, int]) -> None:
    """What the next process finds, twice: it goes on from there."""
    recent = [
        number for number, when in acknowledged.items() if when > clock.now_us - 6 * DAY // timedelta(microseconds=1)
    ]
    for turn in range(2):
        with FolderLog(root, background=False, clock=clock) as log:
            (partition,) = small_topic(log, retention_bytes=6000, exist_ok=True).partitions
            assert [number for number in recent if post(partition, number) != 1] == []
            found = numbers_of(partition)
            assert len(found) == len({*found})
            missing = {*acknowledged} - {*found}
            assert all(number < min(found) for number in missing), (missing, found)
            assert post(partition, 1000 + turn) == 0
            partition.roll()


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.long), 13])
@pytest.mark.parametrize("is_torn", [False, True])
def test_death_at_any_step_forgets_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_torn: bool, step: int
) -> None:
    monkeypatch.setattr(keys_module, "FILE_BYTES_MAX", 300)
    with monkeypatch.context() as patch:
        whole = Life(patch, None, is_torn=is_torn)
        live(tmp_path / "whole", ManualClock(START_US), {})
    assert whole.calls > 200
    for dies_at in range(0, whole.calls, step):
        acknowledged: dict[int, int] = {}
        clock = ManualClock(START_US)
        root = tmp_path / str(dies_at)
        with monkeypatch.context() as patch:
            life = Life(patch, dies_at, is_torn=is_torn)
            with suppress(Died):
                live(root, clock, acknowledged)
            assert life.is_over
        check(root, clock, acknowledged)
