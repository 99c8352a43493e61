"""What the page Pipeline says of a view."""

from __future__ import annotations

from dataclasses import replace

from penstock.dashboard.graph import Node
from penstock.dashboard.numbers import NOTHING
from penstock.dashboard.pipeline_page import step_cells
from penstock.views.runs import Run, ViewSteps
from tests.dashboard.test_graph import beat_of


def test_steps_are_those_of_the_last_run_that_computed_the_view() -> None:
    old = Run("p", 1, "stream", 1, "here", 0, 0, views={"hits": ViewSteps(1, 1), "total": ViewSteps(9, 2)})
    new = replace(old, epoch=2, views={"hits": ViewSteps(1200, 3)})
    other = replace(old, pipeline="other", epoch=3, views={"hits": ViewSteps(5, 5)})
    beat = replace(beat_of({"hits": {}, "total": {}, "never": {}}), runs=(other, new, old))
    assert step_cells(Node("view", "hits"), beat) == ("1\u202f200", "3")
    assert step_cells(Node("view", "total"), beat) == ("9", "2")
    assert step_cells(Node("view", "never"), beat) == (NOTHING, NOTHING)
    assert step_cells(Node("topic", "hits"), beat) == (NOTHING, NOTHING)
