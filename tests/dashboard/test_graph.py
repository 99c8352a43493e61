"""Who reads whom, and where it is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock.dashboard.beat import Beat, ViewState
from penstock.dashboard.graph import HEIGHT, WIDTH, Graph, Node, graph_of, layout
from penstock.pipeline.pipeline import Pipeline
from penstock.views.catalog import Counters, Generation, KnownView
from penstock.views.fence import Fence


def beat_of(views: Mapping[str, Mapping[str, Any]]) -> Beat:
    known = {name: KnownView(name, "f", pa.schema([]), "fold", (), {}, details) for name, details in views.items()}
    generation = Generation("p", "s", 1, "live", Fence(), known, {name: Counters() for name in known}, 0, 0)
    return Beat(0, views={name: ViewState(each, generation, (), 0) for name, each in known.items()})


def test_the_catalog_tells_topics_views_and_changelogs() -> None:
    graph = graph_of(beat_of({
        "hits": {"topics": ["access"], "upstream": [], "changelog": "hits.changes"},
        "total": {"topics": [], "upstream": ["hits"]},
    }))  # fmt: skip
    assert {*graph.edges} == {
        ("topic:access", "view:hits"), ("view:hits", "view:total"), ("view:hits", "topic:hits.changes"),
    }  # fmt: skip


def test_a_definition_adds_what_has_no_rows_yet_and_static_tables() -> None:
    app = Pipeline("shop")
    app.topic("orders", "n int")
    app.table("prices", "prices.csv")
    app.view("cheap", sql="SELECT n FROM orders JOIN prices USING (n)", changelog="cheap.changes")
    app.view("few", sql="SELECT n FROM cheap")
    graph = graph_of(Beat(0), app)
    assert {*graph.edges} == {
        ("topic:orders", "view:cheap"), ("table:prices", "view:cheap"), ("view:cheap", "view:few"),
        ("view:cheap", "topic:cheap.changes"),
    }  # fmt: skip


def test_arrows_go_to_the_right_and_no_two_boxes_meet() -> None:
    graph = Graph()
    for number in range(20):
        view = Node("view", f"view {number}")
        graph.add(Node("topic", f"topic {number % 4}"), view)
        if number >= 8:
            graph.add(Node("view", f"view {number % 8}"), view)
    drawn = layout(graph)
    assert {*drawn.places} == {*graph.nodes}
    for source, target in graph.edges:
        assert drawn.places[source].x + WIDTH < drawn.places[target].x
    boxes = list(drawn.places.values())
    for index, one in enumerate(boxes):
        assert one.x + WIDTH <= drawn.width
        assert one.y + HEIGHT <= drawn.height
        for other in boxes[index + 1 :]:
            assert abs(one.x - other.x) >= WIDTH or abs(one.y - other.y) >= HEIGHT


def test_neighbours_stand_near_one_another() -> None:
    graph = Graph()
    for letter in "abcdefgh":
        graph.add(Node("topic", letter), Node("view", {"a": "z", "h": "a"}.get(letter, letter)))
    places = layout(graph).places
    for source, target in graph.edges:
        assert places[source].y == places[target].y


def test_a_changelog_that_is_read_again_may_close_a_circle() -> None:
    graph = Graph()
    graph.add(Node("topic", "a"), Node("view", "b"))
    graph.add(Node("view", "b"), Node("topic", "a"))
    assert len(layout(graph).places) == 2


def test_nothing_is_a_graph_too() -> None:
    assert layout(Graph()).places == {}
