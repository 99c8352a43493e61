"""What is held until somebody switches it in."""

from __future__ import annotations

import pytest

from penstock.errors import (
    NothingReady,
)
from penstock.modes.replays import run_kappa
from penstock.modes.rollback import switch_ready
from penstock.modes.stream import run_stream
from penstock.views.store import open_store
from tests.modes.harness import Lab
from tests.modes.kappa.sales import (
    NEW,
    OLD,
    Views,
    append,
    generations,
    held,
    sales,
    seen,
)

pytestmark = pytest.mark.spark


def test_what_is_held_waits_for_somebody_else_to_switch_it_in(lab: Lab, new_views: Views) -> None:
    with held(lab, new_views) as (store, _):
        assert seen(store) == OLD
        assert generations(store) == [(1, "live"), (2, "ready")]
        live = switch_ready(store)
        assert sorted((each.set, each.number, each.state) for each in live) == [
            ("largest", 2, "live"), ("sizes", 2, "live"),
        ]  # fmt: skip
        assert seen(store) == NEW
        assert generations(store) == [(1, "old"), (2, "live")]
    # Nothing of the request is left: the next one that holds waits again.
    with open_store(f"sqlite:{lab.folder}/live.db") as store:
        assert store.query("SELECT count(*) FROM _penstock_requests")[1] == [(0,)]


def test_what_a_run_left_ready_is_switched_in_without_any_run(lab: Lab, new_views: Views) -> None:
    with held(lab, new_views) as (store, end):
        end()
        assert seen(store) == OLD
        assert generations(store) == [(1, "live"), (2, "ready")]
        assert len(switch_ready(store, "sales")) == 2
        assert seen(store) == NEW
        with pytest.raises(NothingReady):
            switch_ready(store)
    append(lab, [("a", 1), ("a", 7)])
    with lab.engine("live", sales("n > 1"), compiled=new_views) as (engine, store):
        run_stream(engine, once=True)
        assert seen(store)["totals"] == [("a", 3, 12), ("b", 2, 9)]


def test_what_was_held_is_switched_in_by_the_next_run_that_does_not_hold(lab: Lab, new_views: Views) -> None:
    with held(lab, new_views) as (_, end):
        end()
    with lab.engine("live", sales("n > 1"), compiled=new_views) as (engine, store):
        run_kappa(engine, once=True)
        assert generations(store) == [(1, "old"), (2, "live")]
        assert seen(store) == NEW
