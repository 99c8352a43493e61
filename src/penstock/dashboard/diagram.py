"""A diagram: the graph of a pipeline as boxes and arrows, with the numbers of now."""

from __future__ import annotations

from typing import Any

from nicegui.element import Element

from penstock.dashboard.graph import HEIGHT, WIDTH, Graph, Layout

LETTERS = 22
"""So many fit into the first line of a box."""


class Diagram(Element, component="static/diagram.js"):
    """Boxes and arrows."""

    def __init__(self) -> None:
        super().__init__()
        self._props.update({"label": "", "width": 0, "height": 0, "boxes": [], "arrows": []})

    def show(
        self, label: str, graph: Graph, at: Layout, facts: dict[str, Box], flows: dict[tuple[str, str], Flow]
    ) -> None:
        """Draws it; `facts` and `flows` say what stands in the boxes and on the arrows."""
        boxes = []
        for name, place in at.places.items():
            node, fact = graph.nodes[name], facts[name]
            title = node.name if len(node.name) <= LETTERS else f"{node.name[: LETTERS - 1]}…"
            boxes.append(
                {"name": name, "kind": node.kind, "x": place.x, "y": place.y, "width": WIDTH, "height": HEIGHT,
                 "title": title, **fact}
            )  # fmt: skip
        arrows = []
        for source, target in graph.edges:
            start, end = at.places[source], at.places[target]
            arrows.append(
                {"name": f"{source} {target}", "x1": start.x + WIDTH, "y1": start.y + HEIGHT // 2, "x2": end.x,
                 "y2": end.y + HEIGHT // 2, **flows[source, target]}
            )  # fmt: skip
        props = {"label": label, "width": at.width, "height": at.height, "boxes": boxes, "arrows": arrows}
        if any(self._props.get(key) != value for key, value in props.items()):
            self._props.update(props)
            self.update()


Box = dict[str, Any]
"""`lines`, `about`, `state` and `href` of a box."""
Flow = dict[str, Any]
"""`text` and `isMoving` of an arrow."""
