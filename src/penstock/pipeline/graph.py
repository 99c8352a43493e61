"""Who reads whom: the order in which views are computed, and which of them must move together."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import CycleError
from penstock.pipeline.definition import ViewSpec


def in_order(views: Mapping[str, ViewSpec]) -> tuple[ViewSpec, ...]:
    """Each view after those it reads; otherwise as they were defined. CycleError names the whole circle.

    Inputs that are no views are left alone.
    """
    done: dict[str, ViewSpec] = {}
    for start in views:
        path: list[str] = []  # from the start down to the view being looked at, each reading the next
        waiting = [(start, iter(views[start].inputs))] if start not in done else []
        path.extend(name for name, _ in waiting)
        while waiting:
            name, inputs = waiting[-1]
            below = next((each for each in inputs if each in views and each not in done), None)
            if below is None:
                done[name] = views[name]
                waiting.pop()
                path.pop()
            elif below in path:
                circle = path[path.index(below) :]
                raise CycleError(circle, [views[each].place for each in circle])
            else:
                waiting.append((below, iter(views[below].inputs)))
                path.append(below)
    return tuple(done.values())


def connected(ordered: tuple[ViewSpec, ...], ties: frozenset[str]) -> tuple[tuple[ViewSpec, ...], ...]:
    """Views that are connected through views, or through other inputs in `ties`; each set in the order given."""
    leader = {view.name: view.name for view in ordered}

    def lead_of(name: str) -> str:
        while leader[name] != name:
            leader[name] = name = leader[leader[name]]
        return name

    shared: dict[str, str] = {view.name: view.name for view in ordered}
    for view in ordered:
        for name in view.inputs:
            if name in shared or name in ties:
                leader[lead_of(view.name)] = lead_of(shared.setdefault(name, view.name))
    sets: dict[str, list[ViewSpec]] = {}
    for view in ordered:
        sets.setdefault(lead_of(view.name), []).append(view)
    return tuple(tuple(found) for found in sets.values())
