"""Random pipelines, logs and cuts, for properties that hold of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from tests.modes.agreement.grammar import (
    TOPIC,
    TOPICS,
    Aggregate,
    Columns,
    Groups,
    Joined,
    Row,
    Rows,
    Sum,
    Test,
    View,
    Window,
)
from tests.modes.agreement.model import Kept, ways

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATENESS = "10 minutes"
STRAY = (None, datetime(1970, 1, 1, 0, 1, tzinfo=UTC), datetime(2099, 1, 1, tzinfo=UTC), START - timedelta(days=3))

Turn = Literal["step", "round", "replay"]
TURNS: tuple[Turn, ...] = ("step", "step", "round", "replay")


@dataclass(frozen=True)
class Case:
    """A pipeline, what comes in, and where the steps end."""

    views: tuple[Kept, ...]
    records: tuple[tuple[str, Row, int], ...]
    """Topic, columns, and when it arrived, in microseconds."""
    cuts: tuple[tuple[float, ...], ...]
    """For each step, how far each partition comes, as a part of what is left of it."""
    turns: tuple[Turn, ...]
    """For each of them, what happens before or instead of it."""
    is_batch_first: bool
    big_rows: int
    """From so many records on a step computes redone views as a whole."""

    def __repr__(self) -> str:
        views = "\n".join(f"  {each.view.name} {each.how} late={each.late}: {each.view.sql}" for each in self.views)
        rows = "\n".join(f"  {name} {arrived - ARRIVED_FROM}: {row}" for name, row, arrived in self.records)
        how = f"cuts {self.cuts} turns {self.turns} batch_first={self.is_batch_first} big={self.big_rows}"
        return f"Case\n{views}\n{rows}\n  {how}"


ARRIVED_FROM = int(START.timestamp()) * 1_000_000


@st.composite
def cases(draw: st.DrawFn, views_max: int = 4, records_max: int = 24) -> Case:
    """A case; the smaller, the simpler."""
    known: dict[str, tuple[Columns, tuple[str, ...] | None]] = dict.fromkeys(TOPICS, (TOPIC, None))
    kept: list[Kept] = []
    for number in range(draw(st.integers(2, views_max))):
        view = draw(_view(f"v{number}", known))
        known[view.name] = (view.columns, view.key)
        is_late: Any = st.sampled_from(["correct", "drop"] if set(view.sources) & {*TOPICS} else ["correct"])
        kept.append(
            Kept(view, draw(st.sampled_from(ways(view))), draw(is_late), draw(st.booleans()), draw(st.booleans()))
        )
    records = draw(_records(records_max))
    cuts = draw(st.lists(st.tuples(*[st.sampled_from([0.0, 0.3, 1.0])] * 4), min_size=2, max_size=5))
    turns = tuple(draw(st.sampled_from(TURNS)) for _ in cuts)
    return Case(tuple(kept), records, tuple(cuts), turns, draw(st.booleans()), draw(st.sampled_from([1_000, 4])))


@st.composite
def _records(draw: st.DrawFn, count_max: int) -> tuple[tuple[str, Row, int], ...]:
    times = st.one_of(st.integers(-30, 30), st.sampled_from(STRAY))
    row = st.tuples(
        st.sampled_from(TOPICS),
        st.fixed_dictionaries(
            {
                "time": times,
                "k": st.sampled_from(["a", "b", "", "A", None]),
                "g": st.sampled_from([0, 1, None]),
                "n": st.sampled_from([1, -2, 5, None]),
            }
        ),
        st.sampled_from([0, 1, 7]),
        st.integers(1, 2),
    )
    found: list[tuple[str, Row, int]] = []
    minute = 0
    # An empty log is worth a look, now and then; a short one shows little.
    count = draw(st.sampled_from([count_max, count_max // 2, 0]))
    for topic, columns, pause, times_sent in draw(st.lists(row, min_size=count, max_size=count)):
        minute += pause
        now = START + timedelta(minutes=minute)
        time = now + timedelta(minutes=columns["time"]) if isinstance(columns["time"], int) else columns["time"]
        found += [(topic, {**columns, "time": time}, int(now.timestamp()) * 1_000_000)] * times_sent
    return tuple(found)


@st.composite
def _view(draw: st.DrawFn, name: str, known: dict[str, tuple[Columns, tuple[str, ...] | None]]) -> View:
    source = draw(st.sampled_from([*known, *list(known)[len(TOPICS) :] * 3]))
    columns, key = known[source]
    kinds = ["groups", "groups", *(["rows"] if source in TOPICS or key is not None else []), "joined"]
    kind = draw(st.sampled_from(kinds))
    if kind == "joined":
        joined = draw(_joined(name, known))
        if joined is not None:
            return joined
    sources = draw(st.sampled_from([(source,), TOPICS])) if source in TOPICS else (source,)
    test = draw(st.one_of(st.none(), _test(columns)))
    if kind == "rows":
        return draw(_rows(name, sources, test, columns, key))
    return draw(_groups(name, sources, test, columns))


@st.composite
def _rows(
    draw: st.DrawFn,
    name: str,
    sources: tuple[str, ...],
    test: Test | None,
    columns: Columns,
    key: tuple[str, ...] | None,
) -> View:
    if sources[0] in TOPICS:
        key = draw(st.sampled_from([None, ("k",), ("g",), ("k", "g")]))
    more = draw(st.sets(st.sampled_from([*columns])))
    kept: Columns = {column: kind for column, kind in columns.items() if column in more or column in (key or ())}
    computed = draw(st.one_of(st.none(), _sum(columns)))
    if not kept and computed is None:
        kept = dict([next(iter(columns.items()))])
    copies = draw(st.sampled_from([1, 2])) if key is None else 1
    return Rows(name, sources, test, kept, computed, key, copies)


@st.composite
def _groups(draw: st.DrawFn, name: str, sources: tuple[str, ...], test: Test | None, columns: Columns) -> View:
    by = draw(st.sets(st.sampled_from(["", *(each for each, kind in columns.items() if kind != "time")]), max_size=2))
    shapes = [Window(10, 10, 0), Window(10, 5, 2), Window(1440, 1440, 300)]
    window = draw(st.one_of(st.none(), st.sampled_from(shapes))) if columns.get("time") == "time" else None
    numbers, ordered = _of(columns, "int"), [*_of(columns, "int"), *_of(columns, "text"), *_of(columns, "time")]
    # Those that can be taken back come first and often: only views made of them alone are folded over views.
    choices = [Aggregate("rows", None), *(Aggregate("sum", column) for column in numbers)] * 3
    choices += [Aggregate(each, column) for each in ("bit_xor",) for column in numbers]
    choices += [Aggregate(each, column) for each in ("count", "min", "max", "distinct") for column in ordered]
    aggregates = tuple(draw(st.lists(st.sampled_from(choices), min_size=1, max_size=3, unique=True)))
    types: Any = tuple(columns[a.column] if a.column and a.function in ("min", "max") else "int" for a in aggregates)
    having: Any = draw(st.one_of(st.none(), st.none(), st.tuples(st.sampled_from(["<", ">"]), st.integers(1, 3))))
    kept: Columns = {column: kind for column, kind in columns.items() if column in by}
    fixed = tuple(_fixed(columns, number) for number in range(draw(st.sampled_from([0, 0, 0, 3]))))
    return Groups(name, sources, test, kept, window, aggregates, types, having, fixed)


def _fixed(columns: Columns, number: int) -> Row:
    """A row that stands in a view: of groups and windows that records may fall into, or may not."""
    time = (START + number * timedelta(minutes=17)).replace(tzinfo=ZoneInfo("UTC"))  # As Arrow has it: keys go by repr.
    values = {"int": number, "text": "az"[number % 2], "time": time, "window": {"start": time, "end": time}}
    return {name: values[kind] for name, kind in columns.items()}


@st.composite
def _joined(draw: st.DrawFn, name: str, known: dict[str, tuple[Columns, tuple[str, ...] | None]]) -> Joined | None:
    left, right = draw(st.permutations([*known]))[:2]
    kind: Any = draw(st.sampled_from(["int", "text"]))
    ours, theirs, sums = _of(known[left][0], kind), _of(known[right][0], kind), _of(known[right][0], "int")
    if not (ours and theirs and sums):
        return None
    our, their, summed = (draw(st.sampled_from(each)) for each in (ours, theirs, sums))
    asked: Any = draw(st.sampled_from([None, None, "EXISTS", "NOT EXISTS", "IN"]))
    return Joined(name, (left, right), our, their, summed, kind, asked)


@st.composite
def _test(draw: st.DrawFn, columns: Columns) -> Test | None:
    numbers = _of(columns, "int")
    is_number: bool = draw(st.booleans())
    if numbers and is_number:
        operator: Any = draw(st.sampled_from([">", "=", "<=>", "BETWEEN"]))
        return Test(draw(st.sampled_from(numbers)), operator, draw(st.integers(-1, 3)))
    texts = _of(columns, "text")
    is_text: bool = draw(st.booleans())
    if texts and is_text:
        return Test(draw(st.sampled_from(texts)), "LIKE A")
    return Test(draw(st.sampled_from([*columns])), draw(st.sampled_from(["IS NULL", "IS NOT NULL"])))


@st.composite
def _sum(draw: st.DrawFn, columns: Columns) -> Sum | None:
    numbers = _of(columns, "int")
    if not numbers:
        return None
    return Sum(draw(st.sampled_from(numbers)), draw(st.sampled_from(["+", "*"])), draw(st.sampled_from([-1, 0, 2])))


def _of(columns: Columns, kind: str) -> list[str]:
    return [name for name, each in columns.items() if each == kind]
