"""Redo: by what windows or groups a view's rows can be computed again piece by piece, declared or found in its plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from penstock.pipeline.definition import ANY_INPUT
from penstock.plans.bands import Band
from penstock.plans.decision import Input, Redo
from penstock.plans.meeting import Meeting
from penstock.plans.tree import Node, plan_of

if TYPE_CHECKING:
    from penstock.pipeline.definition import ViewSpec

_NOT_ONE_EACH = frozenset({"Expand", "Generate", "Aggregate", "Window"})
"""Nodes that give several rows for one, or one for several: a sliding window, explode, an aggregate, OVER."""


@dataclass(frozen=True)
class Undivided:
    """Why a view does not fall into windows or groups."""

    why: str


def by_window(plan: Node, meeting: Meeting, spec: ViewSpec, inputs: Mapping[str, Input]) -> Redo | None:
    """By the window in the view's key, made of the event time or the arrival of each topic."""
    for name, number in _outputs(plan, spec.key or ()):
        for band in meeting.bands:
            if band.window is not None and number in band.visible | band.starts and _is_of_time(band, inputs):
                times = {source.input: source.column for source in band.leaves.values()}
                return Redo("window", name, {}, (name,), times, band.window)
    return None


def by_group(plan: Node, meeting: Meeting, columns: Sequence[str]) -> Redo | Undivided:
    """By all columns that the plan respects. `columns`: the names of the view's own columns."""
    bands = [band for band in meeting.bands if _is_partition(band)]
    if not bands or not meeting.is_restricted:
        return Undivided(meeting.why or "nothing in its plan says which rows belong together")
    plain = [band for band in bands if not any(source.window or source.path for source in band.leaves.values())]
    finest = {tuple((leaf, source.column) for leaf, source in sorted(band.leaves.items())) for band in plain}
    chosen = plain + [
        band
        for band in bands
        if band not in plain and tuple((leaf, s.column) for leaf, s in sorted(band.leaves.items())) not in finest
    ]
    groups: dict[str, tuple[str, ...]] = {}
    for band in chosen:
        for name, sql in {source.input: source.sql for source in band.leaves.values()}.items():
            groups[name] = (*groups.get(name, ()), sql)
    return Redo("group", None, groups, _seen(plan, chosen, columns))


def declared(plan: Node, meeting: Meeting, columns: Sequence[str], groups: Mapping[str, tuple[str, ...]]) -> Redo:
    """By what `within=` says. Where the plan shows the same columns in the output, rows need not carry the group."""
    chosen: list[Band] = []
    for place in range(len(next(iter(groups.values()), ()))):
        wanted = {name: expressions[place] for name, expressions in groups.items()}
        for band in meeting.bands:
            if {source.input: source.sql for source in band.leaves.values()} == wanted:
                chosen.append(band)
                break
    is_whole = len(chosen) == len(next(iter(groups.values()), ()))
    return Redo("group", None, groups, _seen(plan, chosen, columns) if is_whole else None)


def within_of(spec: ViewSpec, inputs: Mapping[str, Input]) -> tuple[dict[str, tuple[str, ...]], list[tuple[str, str]]]:
    """By input, the expressions that `within=` declares; and what is wrong with them, each with what to do."""
    changing = {name: each for name, each in inputs.items() if each.kind != "table"}
    problems: list[tuple[str, str]] = []
    for name in spec.within:
        if name != ANY_INPUT and name not in inputs:
            near = get_close_matches(name, inputs, n=1)
            known = f"its inputs are {', '.join(inputs)}"
            problems.append(
                (
                    f"within= names {name!r}, which is not an input",
                    f"did you mean {near[0]!r}? {known}" if near else known,
                )
            )
    groups: dict[str, tuple[str, ...]] = {}
    for name, each in changing.items():
        expressions = spec.within.get(name, spec.within.get(ANY_INPUT))
        if expressions is None:
            problems.append(
                (f"within= says nothing of the input {name!r}", f'add its column: within={{"{name}": ...}}')
            )
            continue
        groups[name] = expressions
        problems += [problem for text in expressions if (problem := _unknown(text, each)) is not None]
    if len({len(each) for each in groups.values()}) > 1:
        counts = ", ".join(f"{name}: {len(each)}" for name, each in groups.items())
        problems.append(
            (f"within= has another number of columns for each input ({counts})", "they are compared one by one")
        )
    return groups, problems


def _unknown(expression: str, each: Input) -> tuple[str, str] | None:
    from pyspark.errors import PySparkException

    try:
        groups = each.frame.selectExpr(expression)
    except PySparkException as error:
        first = str(error).partition("\n")[0]
        near = get_close_matches(expression, each.schema.fieldNames(), n=1)
        known = f"{each.name} has the columns {', '.join(each.schema.fieldNames())}"
        hint = f"did you mean {near[0]!r}? {known}" if near else known
        return f"within= {expression!r} does not fit the input {each.name!r}: {first}", hint
    if any(node.kind in _NOT_ONE_EACH for node in plan_of(groups).walk()):
        return (
            f"within= {expression!r} does not give each row of the input {each.name!r} one group",
            "groups must not overlap: take a column, or an expression of one row's columns such as a tumbling window",
        )
    return None


def _is_of_time(band: Band, inputs: Mapping[str, Input]) -> bool:
    """Whether the window is made of when things happened or when they came, in topics alone."""
    for source in band.leaves.values():
        each = inputs.get(source.input)
        if each is None or each.kind != "topic" or source.column not in (each.event_time, "_arrived"):
            return False
    return True


def _is_partition(band: Band) -> bool:
    """Whether each row has one value of the band: in a sliding window it has several."""
    return all(source.window is None or source.window[0] == source.window[1] for source in band.leaves.values())


def _seen(plan: Node, bands: Sequence[Band], columns: Sequence[str]) -> tuple[str, ...] | None:
    """The output columns that equal the bands, in their order; None where one is not there."""
    outputs = list(_outputs(plan, columns))
    found = [next((name for name, number in outputs if number in band.visible), None) for band in bands]
    return None if None in found else tuple(name for name in found if name is not None)


def _outputs(plan: Node, names: Sequence[str]) -> Iterator[tuple[str, int]]:
    for number, name in plan.outputs():
        if name in names:
            yield name, number
