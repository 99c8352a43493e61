"""The graph of a pipeline: who reads whom, and where each stands when it is drawn. It knows no numbers and no browser.

Columns go from what comes in to what goes out: topics and tables, views, the views that read them, topics of changes.
Within a column everything stands near to what it reads, so that few arrows cross.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from penstock.dashboard.beat import Beat
from penstock.pipeline.definition import TopicSpec, ViewSpec

if TYPE_CHECKING:
    from penstock.pipeline.pipeline import Pipeline

Kind = Literal["topic", "table", "view"]

WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 196, 74, 104, 20, 12
SWEEPS = 6


@dataclass(frozen=True)
class Node:
    """A topic, a static table or a view."""

    kind: Kind
    name: str

    @property
    def id(self) -> str:
        """A topic and a view may have the same name."""
        return f"{self.kind}:{self.name}"


@dataclass
class Graph:
    """Nodes, and edges from who is read to who reads."""

    nodes: dict[str, Node] = field(default_factory=dict)
    edges: dict[tuple[str, str], None] = field(default_factory=dict)

    def add(self, source: Node, target: Node) -> None:
        """An edge, and both its ends."""
        for node in (source, target):
            self.nodes.setdefault(node.id, node)
        self.edges[source.id, target.id] = None

    def sources(self, node: str) -> list[str]:
        return [source for source, target in self.edges if target == node]


def graph_of(beat: Beat, pipeline: Pipeline | None = None) -> Graph:
    """What the catalog knows; with a definition also what has no rows yet, and static tables."""
    graph = Graph()
    for name, view in beat.views.items():
        target, details = Node("view", name), view.known.details
        graph.nodes.setdefault(target.id, target)
        for topic in details.get("topics", ()):
            graph.add(Node("topic", topic), target)
        for upstream in details.get("upstream", ()):
            graph.add(Node("view", upstream), target)
        if details.get("changelog"):
            graph.add(target, Node("topic", details["changelog"]))
    if pipeline is not None:
        _add_definition(graph, pipeline)
    return graph


def _add_definition(graph: Graph, pipeline: Pipeline) -> None:
    for topic in pipeline.topics:
        graph.nodes.setdefault(Node("topic", topic).id, Node("topic", topic))
    for view in pipeline.views.values():
        target = Node("view", view.name)
        graph.nodes.setdefault(target.id, target)
        for spec in pipeline.inputs_of(view).values():
            if isinstance(spec, ViewSpec):
                graph.add(Node("view", spec.name), target)
            elif isinstance(spec, TopicSpec):
                graph.add(Node("topic", spec.name), target)
            elif spec.topic is not None:
                graph.add(Node("topic", spec.topic), target)
            else:
                graph.add(Node("table", spec.name), target)
        if view.changelog:
            graph.add(target, Node("topic", view.changelog))


@dataclass(frozen=True)
class Place:
    """Where a node stands: the upper left corner."""

    x: int
    y: int


@dataclass(frozen=True)
class Layout:
    """A graph on paper."""

    places: Mapping[str, Place]
    width: int
    height: int


def layout(graph: Graph) -> Layout:
    """Columns from left to right. A changelog that is read again may close a circle; then it stands where it begins."""
    columns = _columns(graph)
    for sweep in range(SWEEPS):
        ordered = columns if sweep % 2 == 0 else columns[::-1]
        heights = {node: index for column in columns for index, node in enumerate(column)}
        for column in ordered:
            column.sort(key=lambda node: (_middle(graph, node, heights), node))
            heights.update({node: index for index, node in enumerate(column)})
    tallest = max((len(column) for column in columns), default=0)
    height = tallest * (HEIGHT + GAP_Y) - GAP_Y
    places = {}
    for number, column in enumerate(columns):
        top = (height - (len(column) * (HEIGHT + GAP_Y) - GAP_Y)) // 2
        for index, node in enumerate(column):
            x, y = MARGIN + number * (WIDTH + GAP_X), MARGIN + top + index * (HEIGHT + GAP_Y)
            places[node] = Place(x, y)
    width = len(columns) * (WIDTH + GAP_X) - GAP_X
    return Layout(places, max(width, 0) + 2 * MARGIN, max(height, 0) + 2 * MARGIN)


def _columns(graph: Graph) -> list[list[str]]:
    depth: dict[str, int] = {}

    def depth_of(node: str, path: frozenset[str]) -> int:
        if node not in depth:
            above = [each for each in graph.sources(node) if each not in path]
            depth[node] = 1 + max((depth_of(each, path | {node}) for each in above), default=-1)
        return depth[node]

    for node in graph.nodes:
        depth_of(node, frozenset({node}))
    # What only comes in stands right before the first who reads it.
    for node in graph.nodes:
        readers = [depth[target] for source, target in graph.edges if source == node]
        if not graph.sources(node) and readers:
            depth[node] = max(min(readers) - 1, 0)
    columns: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node in graph.nodes:
        columns[depth[node]].append(node)
    return [column for column in columns if column]


def _middle(graph: Graph, node: str, heights: Mapping[str, int]) -> float:
    near = [*graph.sources(node), *(target for source, target in graph.edges if source == node)]
    return _mean([heights[each] for each in near]) if near else float(heights[node])


def _mean(values: Iterable[int]) -> float:
    found = list(values)
    return sum(found) / len(found)
