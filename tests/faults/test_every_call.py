"""A kill and an I/O error at every system call that changes a file: nothing acknowledged is lost, and work goes on."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.faults.injection import Call, Fault, NoTracing, calls_of, inject_all
from tests.faults.scenarios import Scenario

pytestmark = pytest.mark.system
PARQUET_STEP = 12
"""Parquet is written in many small, similar writes to a temporary file. One in this many is tried."""


def calls(scenario: Scenario, directory: Path) -> list[Call]:
    try:
        return calls_of(scenario, directory)
    except NoTracing as error:
        pytest.skip(str(error))


def test_scenario_makes_every_kind_of_call(memory_path: Path) -> None:
    found = calls("life", memory_path) + calls("mend", memory_path)
    names = {call.name for call in found}
    assert names >= {"write", "fsync", "fdatasync", "rename", "unlink", "ftruncate", "mkdir", "link"}
    assert names & {"pwritev", "pwritev2"}
    for part in ("topic.json", "manifest.json", ".log", ".parquet", "/end", "/offsets/", "/deleted-"):
        assert any(part in call.arguments for call in found), part


def test_kill_and_error_at_a_call_of_each_kind(memory_path: Path, dice: Random) -> None:
    found = calls("life", memory_path) + calls("mend", memory_path)
    kinds = sorted({(call.scenario, call.name) for call in found})
    chosen = [dice.choice([call for call in found if (call.scenario, call.name) == kind]) for kind in kinds]
    wrong = inject_all(memory_path, chosen, ("kill", "error"))
    assert not wrong, "\n".join(wrong)


@pytest.mark.long
@pytest.mark.parametrize("scenario", ["life", "mend"])
@pytest.mark.parametrize("fault", ["kill", "error"])
def test_fault_at_every_call(memory_path: Path, fault: Fault, scenario: Scenario) -> None:
    found = calls(scenario, memory_path)
    parquet = [call for call in found if call.name == "write"]
    chosen = [call for call in found if call.name != "write"] + parquet[::PARQUET_STEP]
    wrong = inject_all(memory_path, chosen, (fault,))
    assert not wrong, f"{len(wrong)} of {len(chosen)}:\n" + "\n".join(wrong)
