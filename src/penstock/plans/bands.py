"""Bands: a column of each changing input by which the inputs fall into groups that never meet (see `meeting.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.plans.tree import Expression, Node, conjuncts, unaliased
from penstock.plans.windows import TimeWindow, bound_of, quoted


@dataclass(frozen=True)
class Source:
    """A column of an input, a window over it, or a field inside it."""

    input: str
    column: str
    window: tuple[int, int, int] | None = None
    """The length, slide and offset of a window over the column; None for the column itself."""
    path: str = ""
    """A field inside, such as `.start`."""

    @property
    def sql(self) -> str:
        inner = (
            quoted(self.column) if self.window is None else TimeWindow(0, self.column, *self.window).sql(self.column)
        )
        return inner + self.path


@dataclass(frozen=True)
class Band:
    """A column of each changing leaf, and where its value can be seen at this height of the plan."""

    leaves: Mapping[int, Source]
    """By number of the leaf."""
    visible: frozenset[int]
    """The ids of attributes that equal it."""
    starts: frozenset[int] = frozenset()
    """Of a window: ids of attributes that are its start, which tells the window as well: all have the same length."""
    halves: tuple[frozenset[int], frozenset[int]] | None = None
    """Above a full join: the ids of either side, of which one may be NULL."""
    pinned: int | None = None
    """In a subquery: the outer attribute that it equals, so that one run of the subquery sees one group only."""

    @property
    def window(self) -> tuple[int, int, int] | None:
        """What window it is, if it is the same one of all leaves."""
        found = {None if source.path else source.window for source in self.leaves.values()}
        return found.pop() if len(found) == 1 else None

    def sees(self, ids: Iterable[int]) -> bool:
        return self.pinned is not None or not (self.visible | self.starts).isdisjoint(ids)


def seen_above(band: Band, named: Sequence[Expression]) -> Band:
    """A band as it is seen above a list of named expressions."""
    visible, starts = set(), set()
    for each in named:
        made = unaliased(each)
        assert each.id is not None, each
        if made.is_attribute and made.id in band.visible:
            visible.add(each.id)
        elif band.window is not None and is_start(made, band):
            starts.add(each.id)
        elif band.halves is not None and made.kind == "Coalesce":
            sides = [next((n for n in (0, 1) if arg.id in band.halves[n]), None) for arg in made.children]
            if set(sides) == {0, 1}:
                visible.add(each.id)
    halves = band.halves and tuple(
        frozenset(each.id for each in named if unaliased(each).is_attribute and unaliased(each).id in half and each.id)
        for half in band.halves
    )
    return replace(band, visible=frozenset(visible), starts=frozenset(starts), halves=halves)  # type: ignore[arg-type]


def windows_of(bands: Sequence[Band], made: TimeWindow, number: int) -> list[Band]:
    """The windows of a column: whoever respects the column respects them too."""
    return [
        Band(_each(band, window=made.measure), frozenset([number]))
        for band in bands
        if made.time in band.visible and not any(source.window or source.path for source in band.leaves.values())
    ]


def fields_of(bands: Sequence[Band], made: Expression, number: int) -> list[Band]:
    """A field of a struct: whoever respects the struct respects it too."""
    return [
        Band(
            {leaf: replace(source, path=f"{source.path}.{quoted(made.name)}") for leaf, source in band.leaves.items()},
            frozenset([number]),
        )
        for band in bands
        if band.window is None and made.name and made.children[0].id in band.visible
    ]


def _each(band: Band, window: tuple[int, int, int]) -> dict[int, Source]:
    return {leaf: replace(source, window=window) for leaf, source in band.leaves.items()}


def pinned(band: Band, node: Node) -> Band:
    """A band of a subquery above a filter that equates it with something outside."""
    for condition in conjuncts(node.listed("condition")[0]):
        if condition.kind in ("EqualTo", "EqualNullSafe"):
            for one, other in (condition.children, condition.children[::-1]):
                if one.id in band.visible and other.kind == "OuterReference":
                    return replace(band, pinned=other.children[0].id)
    return band


def asked_in(condition: Expression) -> list[Expression]:
    """The parts of a condition in which NULL has the effect of false: only AND and OR are above them."""
    if condition.kind in ("And", "Or"):
        return [part for child in condition.children for part in asked_in(child)]
    return [condition]


def equated(condition: Sequence[Expression]) -> list[tuple[Expression, Expression]]:
    """The pairs that a condition holds to be equal."""
    return [
        (each.children[0], each.children[1])
        for whole in condition
        for each in conjuncts(whole)
        if each.kind in ("EqualTo", "EqualNullSafe")
    ]


def with_equals(band: Band, pairs: Sequence[tuple[Expression, Expression]]) -> Band:
    """A band as it is seen where a static table was joined: in the columns of the table that equal it."""
    equals = [other.id for pair in pairs for one, other in (pair, pair[::-1]) if one.id in band.visible]
    return replace(band, visible=band.visible.union(each for each in equals if each is not None))


def joined(left: list[Band], right: list[Band], one: Expression, other: Expression, kind: str) -> list[Band]:
    """The bands that a join respects because it equates `one` of its left side with `other` of its right side."""
    found = []
    for band in left:
        for mate in right:
            is_value = one.id in band.visible and other.id in mate.visible
            has_same_window = band.window is not None and band.window == mate.window
            are_starts = has_same_window and is_start(one, band) and is_start(other, mate)
            if (one.id is not None and is_value) or are_starts:
                found.append(_combined(band, mate, kind))
    return found


def beside(bands: Sequence[Band], number: int) -> Band:
    """The band of a union whose sides have these in one place; pinned only if all sides are, to the same attribute."""
    leaves = {leaf: source for band in bands for leaf, source in band.leaves.items()}
    pins = {band.pinned for band in bands}
    return Band(leaves, frozenset([number]), pinned=pins.pop() if len(pins) == 1 else None)


def is_start(expression: Expression, band: Band) -> bool:
    """Whether an expression is the start of the window that a band is. Its end is not: start = end is the next one."""
    window = bound_of(expression)
    is_field = window is not None and window.id in band.visible and expression.fields.get("ordinal") == 0
    return is_field or expression.id in band.starts


def _combined(band: Band, mate: Band, kind: str) -> Band:
    if kind in ("Inner", "Cross"):
        visible, starts = band.visible | mate.visible, band.starts | mate.starts
    elif kind == "RightOuter":
        visible, starts = mate.visible, mate.starts
    elif kind == "FullOuter":
        visible, starts = frozenset(), frozenset()
    else:
        visible, starts = band.visible, band.starts
    halves = (band.visible, mate.visible) if kind == "FullOuter" else None
    return Band({**band.leaves, **mate.leaves}, visible, starts, halves, band.pinned or mate.pinned)


def distinct(bands: Iterable[Band]) -> list[Band]:
    """One band for each choice of columns, seen wherever any of them is."""
    found: dict[object, Band] = {}
    for band in bands:
        key = tuple(sorted(band.leaves.items(), key=lambda leaf: leaf[0]))
        old = found.get(key)
        if old is not None:
            band = replace(band, visible=band.visible | old.visible, starts=band.starts | old.starts)
        found[key] = band
    return list(found.values())
