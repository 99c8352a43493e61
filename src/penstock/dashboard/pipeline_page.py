"""The page Pipeline: topics, views, and what flows between them."""

from __future__ import annotations

from penstock.dashboard.beat import Beat
from penstock.dashboard.diagram import Box, Diagram, Flow
from penstock.dashboard.graph import Graph, Node, graph_of, layout
from penstock.dashboard.markup import Tag, card
from penstock.dashboard.numbers import NOTHING, count, plural, rate
from penstock.dashboard.screen import Screen
from penstock.dashboard.sheet import Column, Sheet, address, link


def build(screen: Screen) -> None:
    """Draws the graph of all pipelines that are served."""
    with screen.main:
        with card("Graph"):
            nothing = Tag("p", "", "note")
            diagram = Diagram()
        with card("The same as a table"):
            columns = [Column("from", "From"), Column("to", "To"), Column("rate", "Events/s", is_right=True),
                       Column("lag", "Lag", is_right=True), Column("rows", "Rows", is_right=True),
                       Column("driver", "Steps in the driver", is_right=True),
                       Column("spark", "Steps by Spark", is_right=True)]  # fmt: skip
            table = Sheet("Who reads whom", columns, "Nothing reads anything yet.")

    def refresh(beat: Beat) -> None:
        graph = graph_of(beat, screen.service.pipeline)
        rates = screen.pulse.rates([*beat.topics])
        facts = {name: _facts(node, beat, rates) for name, node in graph.nodes.items()}
        flows = {edge: _flow(graph, edge, beat, rates) for edge in graph.edges}
        views = sum(node.kind == "view" for node in graph.nodes.values())
        topics = sum(node.kind == "topic" for node in graph.nodes.values())
        label = f"{plural(topics, 'topic')} and {plural(views, 'view')}; the same is in the table below"
        screen.about.say(f"{plural(topics, 'topic')}, {plural(views, 'view')}")
        nothing.say("" if graph.nodes else "There is no view yet: it comes with the first run of a pipeline.")
        diagram.show(label, graph, layout(graph), facts, flows)
        table.show([
            [_named(graph.nodes[source]), _named(graph.nodes[target]), flows[source, target]["text"].removesuffix("/s"),
             _lag(graph.nodes[target], beat), _rows(graph.nodes[target], beat), *step_cells(graph.nodes[target], beat)]
            for source, target in graph.edges
        ])  # fmt: skip

    screen.live(refresh)


def _named(node: Node) -> str | dict[str, str]:
    text = f"{node.kind} {node.name}"
    return text if node.kind == "table" else link(text, f"{node.kind}s", node.name)


def _facts(node: Node, beat: Beat, rates: dict[str, float | None]) -> Box:
    if node.kind == "table":
        return {"lines": ["static table"], "about": f"static table {node.name}", "state": "", "href": None}
    href = address(f"{node.kind}s", node.name)
    if node.kind == "topic":
        topic = beat.topics.get(node.name)
        if topic is None:
            lines = ["not there yet"]
            return {"lines": lines, "about": f"topic {node.name}, not there yet", "state": "waiting", "href": None}
        lines = [plural(topic.records, "record"), f"{rate(rates.get(node.name))} events/s"]
        return {"lines": lines, "about": f"topic {node.name}: {', '.join(lines)}", "state": "", "href": href}
    view = beat.views.get(node.name)
    if view is None:
        return {"lines": ["no rows yet"], "about": f"view {node.name}, no rows yet", "state": "waiting", "href": None}
    lag = f"lag {NOTHING}" if view.lag is None else f"lag {count(view.lag)}"
    lines = [plural(view.counters.rows, "row"), lag]
    state = "behind" if view.lag else ""
    return {"lines": lines, "about": f"view {node.name}: {', '.join(lines)}", "state": state, "href": href}


def _flow(graph: Graph, edge: tuple[str, str], beat: Beat, rates: dict[str, float | None]) -> Flow:
    """Events a second on an arrow: those of the topic it comes from, or goes to. Between views it has none."""
    source, target = graph.nodes[edge[0]], graph.nodes[edge[1]]
    topic = source if source.kind == "topic" else target if target.kind == "topic" else None
    value = rates.get(topic.name) if topic is not None and topic.name in beat.topics else None
    return {"text": "" if value is None else f"{rate(value)}/s", "isMoving": bool(value)}


def _lag(node: Node, beat: Beat) -> str:
    view = beat.views.get(node.name) if node.kind == "view" else None
    return NOTHING if view is None else count(view.lag)


def _rows(node: Node, beat: Beat) -> str:
    view = beat.views.get(node.name) if node.kind == "view" else None
    return NOTHING if view is None else count(view.counters.rows)


def step_cells(node: Node, beat: Beat) -> tuple[str, str]:
    """How many steps of a view its last run has computed in the driver, and how many by jobs of Spark."""
    view = beat.views.get(node.name) if node.kind == "view" else None
    pipeline = None if view is None else view.generation.pipeline
    for run in beat.runs:  # The newest first.
        if run.pipeline == pipeline and node.name in run.views:
            steps = run.views[node.name]
            return count(steps.in_driver), count(steps.by_spark)
    return NOTHING, NOTHING
