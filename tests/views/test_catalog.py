"""The catalog knows every generation, and only one of a set is live."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from sqlalchemy import Connection, event

from penstock.errors import UnknownView, ViewTaken
from penstock.views.catalog import Catalog, Counters, Generation, KnownView
from penstock.views.fence import Fence
from penstock.views.store import Store

SCHEMA = pa.schema(
    [
        pa.field("window", pa.struct([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))])),
        pa.field("hits", pa.int64(), nullable=False),
        pa.field("paid", pa.decimal128(38, 18)),
    ],
    {"made": "by hand"},
)


@pytest.fixture
def connection(store: Store) -> Iterator[Connection]:
    with store.transaction(None) as transaction:
        yield transaction.connection


@pytest.fixture
def catalog(connection: Connection) -> Catalog:
    return Catalog(connection)


def view(name: str, number: int = 1, **settings: object) -> KnownView:
    tables = {"rows": f"{name}__{number}", "state": f"{name}__{number}_state"}
    return KnownView(name, f"print of {name}", SCHEMA, "fold", ("window",), tables, {"why": "it merges", **settings})


def test_a_generation_is_read_as_it_was_entered(catalog: Catalog) -> None:
    upstream, keyless = view("zebra"), KnownView("aardvark", "f", pa.schema([]), "whole")
    made = catalog.new_generation("web", "zebra", [upstream, keyless], created_us=9)
    assert (made.number, made.state, made.created_us, made.switched_us) == (1, "building", 9, None)
    assert catalog.generations("web", "zebra") == catalog.generations() == [made]
    (read,) = catalog.generations("web")
    assert list(read.views) == ["zebra", "aardvark"]
    assert read.views["zebra"].schema.equals(SCHEMA, check_metadata=True)
    assert read.fingerprints == {"zebra": "print of zebra", "aardvark": "f"}
    assert read.tables == ["zebra__1", "zebra__1_state"]
    assert catalog.live("web", "zebra") is None
    assert catalog.views("web") == {}


def test_a_step_moves_the_fence_with_one_statement(connection: Connection, catalog: Catalog) -> None:
    made = catalog.new_generation("web", "hits", [view("hits"), view("top")])
    statements: list[str] = []
    event.listen(connection, "before_cursor_execute", lambda *call: statements.append(call[2]))
    moved = catalog.set_fence(made, Fence({"access": {0: 10}}, 3), {"hits": Counters(rows=4, late=2, corrected=1)})
    assert len(statements) == 1
    assert moved.fence == Fence({"access": {0: 10}}, 3)
    assert moved.counters == {"hits": Counters(4, 2, 1), "top": Counters()}
    assert catalog.read_generation("web", "hits", 1) == moved


def test_a_switch_says_what_to_publish_and_what_to_withdraw(catalog: Catalog) -> None:
    first = catalog.new_generation("web", "hits", [view("hits"), view("top")])
    switched = catalog.switch(first, switched_us=1)
    assert (switched.live.state, switched.live.switched_us, switched.old, switched.withdraw) == ("live", 1, (), ())
    assert switched.publish == (view("hits"), view("top"))
    second = catalog.new_generation("web", "hits", [view("hits", 2), view("worst", 2)])
    assert catalog.views("web") == {"hits": switched.live, "top": switched.live}
    switched = catalog.switch(second, switched_us=2)
    assert [each.number for each in switched.old] == [1]
    assert switched.withdraw == ("top",)
    assert states(catalog) == {1: "old", 2: "live"}
    back = catalog.switch(first, switched_us=3)
    assert (back.live.number, back.withdraw) == (1, ("worst",))
    assert states(catalog) == {1: "live", 2: "old"}
    again = catalog.switch(back.live)
    assert (again.old, again.withdraw, states(catalog)) == ((), (), {1: "live", 2: "old"})


def test_views_that_move_to_another_set_stay_readable(catalog: Catalog) -> None:
    alone = catalog.switch(catalog.new_generation("web", "top", [view("top")]), switched_us=1).live
    joined = catalog.new_generation("web", "hits", [view("hits"), view("top", 2)])
    switched = catalog.switch(joined, replaces=[alone], switched_us=2)
    assert switched.withdraw == ()
    assert catalog.live("web", "top") is None
    assert catalog.views("web")["top"].set == "hits"


def test_a_number_is_never_given_out_twice(catalog: Catalog) -> None:
    for number in (1, 2, 3):
        assert catalog.next_number("web", "hits") == number
        made = catalog.new_generation("web", "hits", [view("hits", number)])
        assert catalog.drop(made) == [f"hits__{number}", f"hits__{number}_state"]
        assert catalog.generations() == []
        assert catalog.read_generation("web", "hits", number) is None
    assert catalog.view_names() == catalog.pipelines() == []


def test_a_view_is_found_in_any_pipeline(catalog: Catalog) -> None:
    live = catalog.switch(catalog.new_generation("web", "hits", [view("hits")]), switched_us=1).live
    catalog.new_generation("web", "hits", [view("hits", 2)])
    building = catalog.new_generation("shop", "revenue", [view("revenue")])
    assert catalog.find_view("hits") == live
    assert catalog.find_view("revenue") == building
    assert catalog.pipelines() == ["shop", "web"]
    with pytest.raises(UnknownView) as unknown:
        catalog.find_view("hit")
    assert unknown.value.known == ("hits", "revenue")
    assert "did you mean 'hits'?" in str(unknown.value)
    with pytest.raises(UnknownView):
        catalog.find_view("hits", "shop")


def test_two_pipelines_cannot_keep_a_view_of_one_name(catalog: Catalog) -> None:
    catalog.new_generation("web", "hits", [view("hits")])
    with pytest.raises(ViewTaken) as taken:
        catalog.new_generation("shop", "revenue", [view("revenue"), view("hits")])
    assert (taken.value.name, taken.value.pipeline, taken.value.other) == ("hits", "shop", "web")
    assert catalog.generations("shop") == []


def states(catalog: Catalog) -> dict[int, str]:
    found: list[Generation] = catalog.generations("web", "hits")
    return {each.number: each.state for each in found}
