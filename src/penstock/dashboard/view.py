"""The page of one view: a chart that grows as windows fill, and its rows, live."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.dashboard.beat import Beat, ViewState, told
from penstock.dashboard.chart import Chart, Series
from penstock.dashboard.control import button, choice, field
from penstock.dashboard.markup import Facts, Tag, card
from penstock.dashboard.numbers import NOTHING, ago, cell, count, exact, plural
from penstock.dashboard.recent import newest
from penstock.dashboard.screen import Screen
from penstock.dashboard.sheet import Column, Sheet
from penstock.dashboard.views import key_text
from penstock.dashboard.windows import (
    Corrections,
    Lines,
    as_number,
    corrected_in,
    group_name,
    lines_of,
    number_columns,
    window_of,
)
from penstock.errors import PenstockError
from penstock.modes.lag import closed_us
from penstock.service.answers import as_json
from penstock.service.rows import Found, Wanted, read_rows
from penstock.service.service import known_view
from penstock.views.store import Snapshot
from penstock.views.values import is_window

PAGE_ROWS = 25
DRAWN_ROWS = 3_000
"""So many of the newest windows' rows are drawn."""
CHANGES = 5_000
"""So many of the last changes are looked at for corrected windows."""
BARS = 20
SIGNS = ("=", "!=", "<", "<=", ">", ">=", "^=")
BY_CHANGES = "◇ marks a window that was corrected after it closed, as far as the last changes in {} tell."
BY_WATCHING = (
    "◇ marks a window that changed after it closed while this dashboard was watching. What was corrected before is not "
    "known here: a view with a changelog tells."
)


class _State:
    """What one browser has chosen."""

    def __init__(self) -> None:
        self.column, self.most = "", 5
        self.order: str | None = None
        """None: not chosen yet."""
        self.pages = [""]
        self.next: str | None = None
        self.filter_column, self.sign, self.value = "", "=", ""

    def rewind(self) -> None:
        """Back to the first page."""
        self.pages = [""]

    @property
    def where(self) -> list[str]:
        return [f"{self.filter_column}{self.sign}{self.value}"] if self.filter_column and self.value else []


def build(screen: Screen, name: str) -> None:
    """Facts, chart and rows of a view."""
    _Page(screen, name)


class _Page:
    def __init__(self, screen: Screen, name: str) -> None:
        self.screen, self.name, self.state = screen, name, _State()
        with screen.main:
            self._chart_card()
            self._rows_card()
            with card("About"):
                self.facts = Facts()
        screen.live(self.refresh)

    # --- what stands on the page ---

    def _chart_card(self) -> None:
        with card("Chart"):
            with Tag("div", classes="controls"):
                self.column = choice("Column", [], "", lambda value: self._choose(column=value))
                mosts = [(str(each), f"{each} greatest") for each in (3, 5, 8)]
                self.most = choice("Groups", mosts, "5", lambda value: self._choose(most=int(value)))
            self.chart = Chart("There is nothing to draw yet.", height=280, x_name="window")
            self.note = Tag("p", "", "note")

    def _rows_card(self) -> None:
        with card("Rows"):
            with Tag("div", classes="controls"):
                self.filter = choice("Only rows where", [], "", lambda value: self._filter(filter_column=value))
                signs = [(each, "begins with" if each == "^=" else each) for each in SIGNS]
                self.sign = choice("Comparison", signs, "=", lambda value: self._filter(sign=value))
                self.value = field("Value", lambda value: self._filter(value=value), "such as 10")
            self.refused = Tag("p", "", "banner", role="alert")
            self.sheet = Sheet("Rows of the view", [Column("row", "Row")], "There are no rows.", self._order)
            with Tag("div", classes="controls"):
                self.back = button("Back", self._back)
                self.forward = button("Next", self._forward)
                self.place = Tag("p", "", "note")

    # --- what is chosen ---

    def _choose(self, **chosen: Any) -> None:
        for key, value in chosen.items():
            setattr(self.state, key, value)
        self.screen.again()

    def _filter(self, **chosen: str) -> None:
        self.state.rewind()
        if chosen.get("sign", "=") in SIGNS:
            self._choose(**chosen)

    def _order(self, order: str) -> None:
        self.state.rewind()
        self._choose(order=order)

    def _forward(self) -> None:
        if self.state.next:
            self.state.pages.append(self.state.next)
            self.screen.again()

    def _back(self) -> None:
        if len(self.state.pages) > 1:
            self.state.pages.pop()
            self.screen.again()

    # --- what is true now ---

    async def refresh(self, beat: Beat) -> None:
        view = beat.views.get(self.name)
        if view is None:
            self.screen.about.say("" if beat.views_problem else "There is no view of this name, or it has no rows yet.")
            return
        known, counters = view.known, view.counters
        self.screen.about.say(f"{plural(counters.rows, 'row')}, lag {count(view.lag)}")
        self.facts.say("Pipeline", view.generation.pipeline)
        self.facts.say("Key", key_text(view))
        self.facts.say("Kept by", known.kept)
        self.facts.say("Made of", ", ".join([*known.details.get("topics", ()), *known.details.get("upstream", ())]))
        self.facts.say("Changes go to", known.details.get("changelog") or NOTHING)
        self.facts.say("Late, corrected", f"{count(counters.late)}, {count(counters.corrected)}")
        clock_us = view.generation.fence.clock_us or None
        self.facts.say("As of", ago(clock_us, beat.at_us), exact(clock_us))
        numbers = number_columns(known)
        if self.state.column not in numbers:
            self.state.column = numbers[0] if numbers else ""
        self.column.show(options=[[each, each] for each in numbers], value=self.state.column)
        window = window_of(known)
        if self.state.order is None:
            self.state.order = "" if window is None else f"-{window}"
        self.most.set_visibility(window is not None and bool(numbers))
        self.column.set_visibility(bool(numbers))
        await self._draw(view, beat)
        await self._show_rows(view)

    async def _draw(self, view: ViewState, beat: Beat) -> None:
        window, column = window_of(view.known), self.state.column
        if not column:
            self.note.say("It has no column of numbers.")
            return
        if window is None:
            await self._draw_bars(column, view)
            return
        rows = await self.screen.read(("drawn", self.name), lambda: self._drawn_rows(window), _version(view))
        lines = lines_of(rows, view.known, window, column, self.state.most)
        changelog = view.known.details.get("changelog")
        changes = beat.topics.get(changelog or "")
        version = (
            _version(view),
            changes.total if changes else 0,
        )  # Changes are carried to their topic a moment after the step.
        marked = await self.screen.read(("marked", self.name), lambda: self._marked(view, window, rows), version)
        series = _series(lines, column, marked)
        latest = "; ".join(f"{each.name}: {cell(each.points[-1][1])}" for each in series if each.points)
        self.chart.lines(f"{column} by {window}, one line per group. The latest values: {latest}", series)
        left_out = f"{plural(lines.left_out, 'group')} with less not drawn. " if lines.left_out else ""
        self.note.say(left_out + (BY_CHANGES.format(changelog) if changelog else BY_WATCHING))

    async def _draw_bars(self, column: str, view: ViewState) -> None:
        wanted = Wanted(order=f"-{column}", limit=BARS)
        found = await self.screen.read(("bars", self.name, column), lambda: self._found(wanted), _version(view))
        names = view.known.key or view.known.schema.names[:1]
        bars = []
        for row in found.rows.to_pylist():
            value = as_number(row[column])
            if value is not None:
                bars.append((" · ".join(cell(row[each]) for each in names) or column, value))
        told_bars = "; ".join(f"{name}: {cell(value)}" for name, value in bars[:5])
        self.chart.bars(f"The greatest rows by {column}: {told_bars}", bars)
        self.note.say(f"The {plural(len(bars), 'row')} with the greatest {column}.")

    async def _show_rows(self, view: ViewState) -> None:
        state, names = self.state, view.known.schema.names
        self.filter.show(options=[["", "(all rows)"], *([each, each] for each in names)], value=state.filter_column)
        numbers = {*number_columns(view.known)}
        steady = {each.name for each in view.known.schema if is_window(each.type)}
        self.sheet.columns([
            Column(each, each, is_right=each in numbers, is_sortable=True, is_steady=each in steady) for each in names
        ])  # fmt: skip
        wanted = Wanted(where=state.where, order=state.order or None, limit=PAGE_ROWS, page=state.pages[-1] or None)
        key = ("rows", self.name, wanted.digest, wanted.page)
        try:
            found = await self.screen.read(key, lambda: self._found(wanted), _version(view))
        except PenstockError as error:
            self.refused.say(told(error))
            if state.pages[-1]:
                state.rewind()
            return
        self.refused.say("")
        state.next = found.next
        rows = as_json(found.rows)
        decimals = {each.name for each in view.known.schema if pa.types.is_decimal(each.type)}
        self.sheet.show([
            [cell(Decimal(row[each]) if each in decimals and row[each] is not None else row[each]) for each in names]
            for row in rows
        ], order=state.order or "")  # fmt: skip
        first = (len(state.pages) - 1) * PAGE_ROWS
        self.place.say(f"Rows {count(first + 1)} to {count(first + len(rows))}" if rows else "")
        self.back.show(disabled=len(state.pages) == 1)
        self.forward.show(disabled=found.next is None)

    # --- reading, in a work thread ---

    def _found(self, wanted: Wanted) -> Found:
        def body(snapshot: Snapshot) -> Found:
            return read_rows(snapshot, known_view(snapshot, self.name), wanted)

        return self.screen.service.reading(body, self.name)

    def _drawn_rows(self, window: str) -> list[dict[str, Any]]:
        found = self._found(Wanted(order=f"-{window}", limit=DRAWN_ROWS)).rows
        rows: list[dict[str, Any]] = found.to_pylist(maps_as_pydicts="lossy")
        return rows

    def _marked(self, view: ViewState, window: str, rows: list[dict[str, Any]]) -> frozenset[tuple[str, int]]:
        service, generation = self.screen.service, view.generation
        service.prompt.check()
        changelog = view.known.details.get("changelog")
        if changelog and changelog in service.log.topics(changelog):
            changes: pa.Table = newest(service.log.topic(changelog), CHANGES)
            lateness = generation.fence.clock_us - (closed_us(generation, self.name, service.log) or 0)
            return frozenset(corrected_in(changes, view.known, window, lateness))
        corrections: Corrections = self.screen.pulse.corrections(self.name)
        closed = closed_us(generation, self.name, service.log)
        corrections.watch(rows, view.known, window, closed, generation.number)
        return frozenset(corrections.marked)


def _series(lines: Lines, column: str, marked: frozenset[tuple[str, int]]) -> list[Series]:
    series = []
    for number, (group, values) in enumerate(lines.groups.items()):
        text = json.dumps(list(group))
        marks = [(at, value) for at, value in values.items() if (text, at) in marked]
        series.append(Series(group_name(group, column), [*values.items()], number, marks=marks))
    return series


def _version(view: ViewState) -> object:
    """Rows are a function of this and nothing else."""
    return view.generation.number, view.generation.beneath, view.generation.fence.to_json()
