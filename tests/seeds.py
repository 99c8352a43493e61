"""Seeds of tests that choose at random: the same one in each run of the gate, a new one in each run of a `long` test.

A test asks for the fixture `seed`, or for `dice`, and pytest shows the line printed here where the test fails:

    to repeat: PENSTOCK_TEST_SEED=838041 pytest tests/faults/test_kill_storm.py::test_kills_lose_nothing_acknowledged
"""

from __future__ import annotations

import os
import random

import pytest

VARIABLE = "PENSTOCK_TEST_SEED"
GATE_SEED = 1


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of this test."""
    is_long = request.node.get_closest_marker("long") is not None
    chosen = int(os.environ.get(VARIABLE) or (random.randrange(1_000_000) if is_long else GATE_SEED))
    group = request.node.get_closest_marker("xdist_group")
    test = request.node.nodeid.removesuffix(f"@{group.args[0]}") if group else request.node.nodeid
    print(f"to repeat: {VARIABLE}={chosen} pytest '{test}'")
    return chosen


@pytest.fixture
def dice(seed: int) -> random.Random:
    """Random choices that follow from the seed."""
    return random.Random(seed)
