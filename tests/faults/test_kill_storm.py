"""Producers, consumers and sealers are killed again and again: nothing acknowledged is lost or stored twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.kills import CREW, kill_storm


@pytest.mark.parametrize("kills", [10, pytest.param(200, marks=pytest.mark.long)])
def test_kills_neither_lose_nor_repeat_what_was_acknowledged(tmp_path: Path, kills: int, seed: int) -> None:
    rounds = kill_storm(tmp_path, kills=kills, seed=seed)
    for each in rounds:
        assert each.verdict.is_clean, str(each)
        assert not each.crashes, "\n".join(each.crashes)
        assert each.verdict.acknowledged > 0
        assert all(stored.sealed_end for stored in each.verdict.partitions.values()), "something was never sealed"
    killed = {name: sum(each.kills[name] for each in rounds) for name in CREW}
    assert sum(killed.values()) == kills
