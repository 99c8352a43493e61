"""Random views in SQL over columns of every type: static tables, unions, subqueries, collations, joins, windows.

What they mean is for plain Spark to say, so nothing here knows how to compute them. Some of them are refused, as some
of what people write is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from penstock import Pipeline
from penstock.pipeline.definition import Kept, Late
from tests.modes.agreement.random_views import ARRIVED_FROM, LATENESS, START, STRAY, TURNS, Turn

DDL = (
    "time timestamp, k string, g bigint, n bigint, small smallint, day date, x double, cents decimal(10,2), "
    "ok boolean, raw binary, pair struct<a: bigint, b: string>"
)
Columns = dict[str, str]
TOPIC: Columns = {
    "time": "time", "k": "text", "g": "int", "n": "int", "small": "int", "day": "date", "x": "double",
    "cents": "decimal", "ok": "flag", "raw": "bytes", "pair": "pair",
}  # fmt: skip
TOPICS = ("events", "others")
NAMES: Columns = {"k": "text", "g": "int", "day": "date", "low": "int"}
NAMES_DDL = "k string, g bigint, day date, low bigint"
NAMES_ROWS = [
    {"k": "a", "g": 0, "day": "2026-01-01", "low": 1},
    {"k": "A", "g": 1, "day": None, "low": -2},
    {"k": "z", "g": 1, "day": "1969-12-31", "low": 5},
    {"k": None, "g": None, "day": "2026-01-01", "low": None},
]
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "k": st.sampled_from(["a", "b", "", "A", "\N{LATIN SMALL LETTER A WITH DIAERESIS}", None]),
    "g": st.sampled_from([0, 1, None]),
    "n": st.sampled_from([1, -2, 5, 2**40, None]),
    "small": st.sampled_from([0, -32768, 7, None]),
    "day": st.sampled_from([date(2026, 1, 1), date(1969, 12, 31), None]),
    # Their sums do not depend on an order.
    "x": st.sampled_from([0.0, -0.0, 0.25, -1.5, float("nan"), float("inf"), None]),
    "cents": st.sampled_from([Decimal("0.01"), Decimal("-99999999.99"), Decimal("10.00"), None]),
    "ok": st.sampled_from([True, False, None]),
    "raw": st.sampled_from([b"", b"\x00", b"\xff", None]),
    "pair": st.sampled_from([{"a": 1, "b": "x"}, {"a": None, "b": None}, {"a": 1, "b": None}, None]),
}
LITERALS = {
    "int": ("0", "1", "-2", "5"),
    "text": ("'a'", "'A'", "''"),
    "date": ("DATE '2026-01-01'", "DATE '1969-12-31'"),
    "double": ("0.0D", "0.25D", "double('NaN')"),
    "decimal": ("0.01BD", "-99999999.99BD"),
    "flag": ("true", "false"),
    "bytes": ("X'00'", "X''"),
    "pair": ("named_struct('a', 1L, 'b', 'x')",),
    "time": ("TIMESTAMP '2026-01-01 12:10:00+00:00'",),
}
COMPARED = ("int", "text", "date", "double", "decimal", "time")
WINDOWS = ("'10 minutes'", "'10 minutes', '5 minutes', '2 minutes'", "'1 day', '1 day', '5 hours'")


@dataclass(frozen=True)
class SqlView:
    """One view, as `Pipeline.view` takes it."""

    name: str
    sql: str
    columns: Columns
    key: tuple[str, ...] | None
    late: Late = "correct"
    kept: Kept | None = None

    def __repr__(self) -> str:
        return f"  {self.name} key={self.key} late={self.late} kept={self.kept}: {self.sql}"


@dataclass(frozen=True)
class SqlCase:
    """A pipeline, the records of its topics, and where steps end."""

    views: tuple[SqlView, ...]
    records: tuple[tuple[str, dict[str, Any], int], ...]
    """Topic, columns, and when it arrived, in microseconds."""
    cuts: tuple[tuple[float, ...], ...]
    """For each step, how far each partition comes, as a part of what is left of it."""
    turns: tuple[Turn, ...]
    """For each step, what happens in its place."""

    def __repr__(self) -> str:
        views = "\n".join(map(repr, self.views))
        rows = "\n".join(f"  {name} {arrived - ARRIVED_FROM}: {row}" for name, row, arrived in self.records)
        return f"SqlCase\n{views}\n{rows}\n  cuts {self.cuts} turns {self.turns}"

    def pipeline(self, names: str) -> Pipeline:
        """The views over two topics and the static table at `names`."""
        app = Pipeline("random")
        for topic in TOPICS:
            app.topic(topic, DDL, key="k", event_time="time", lateness=LATENESS, partitions=2, durability="os")
        app.table("names", names, schema=NAMES_DDL)
        for view in self.views:
            key = None if view.key is None else list(view.key)
            app.view(view.name, sql=view.sql, key=key, late=view.late, kept=view.kept)
        return app


@st.composite
def sql_cases(draw: st.DrawFn, views_max: int = 4, records_max: int = 30) -> SqlCase:
    """A case; the smaller, the simpler."""
    known: list[SqlView] = []
    for number in range(draw(st.integers(1, views_max))):
        known.append(draw(_view(f"v{number}", known)))
    cuts = draw(st.lists(st.tuples(*[st.sampled_from([0.0, 0.3, 1.0])] * 4), min_size=2, max_size=4))
    turns = tuple(draw(st.sampled_from(TURNS)) for _ in cuts)
    return SqlCase(tuple(known), draw(_records(records_max)), tuple(cuts), turns)


@st.composite
def _records(draw: st.DrawFn, count_max: int) -> tuple[tuple[str, dict[str, Any], int], ...]:
    row = st.tuples(
        st.sampled_from(TOPICS),
        st.fixed_dictionaries({"time": st.one_of(st.integers(-30, 30), st.sampled_from(STRAY)), **VALUES}),
        st.sampled_from([0, 1, 7]),
    )
    count = draw(st.sampled_from([count_max, count_max // 3]))
    found: list[tuple[str, dict[str, Any], int]] = []
    now = START
    for topic, columns, pause in draw(st.lists(row, min_size=count, max_size=count)):
        now += timedelta(minutes=pause)
        time = columns["time"]
        time = now + timedelta(minutes=time) if isinstance(time, int) else time
        found.append((topic, {**columns, "time": time}, int(now.timestamp()) * 1_000_000))
    return tuple(found)


@dataclass(frozen=True)
class _Source:
    """Something to select from: an expression for FROM, and the columns it has."""

    sql: str
    columns: Columns
    key: tuple[str, ...] | None = None
    is_topic: bool = False


@st.composite
def _view(draw: st.DrawFn, name: str, known: Sequence[SqlView]) -> SqlView:
    source = draw(_source(known))
    makers = [_groups, _groups, _groups, _joined, _distinct]
    if "time" in source.columns or "w" in source.columns:
        makers += [_windows, _windows]
    if source.is_topic:
        makers += [_rows]
    if source.key:
        makers += [_top, _rows]
    view: SqlView = draw(draw(st.sampled_from(makers))(name, source, known))
    late: Late = draw(st.sampled_from(["correct", "correct", "drop"])) if source.is_topic else "correct"
    kept: Kept | None = draw(st.sampled_from([None, None, None, "whole"]))
    return SqlView(view.name, view.sql, view.columns, view.key, late, kept)


@st.composite
def _source(draw: st.DrawFn, known: Sequence[SqlView]) -> _Source:
    """A topic, a view, or either with something united, joined or left out."""
    views = [_Source(each.name, each.columns, each.key) for each in known]
    topics = [_Source(each, TOPIC, is_topic=True) for each in TOPICS]
    base: _Source = draw(st.sampled_from([*topics, *views, *views]))
    columns = base.columns
    kind = draw(st.sampled_from(["", "", "", "topics", "static", "literal", "named"]))
    if kind == "topics" and base.is_topic:
        sides = [f"SELECT {', '.join(columns)} FROM {each}" for each in TOPICS]
        base = _Source(f"({' UNION ALL '.join(sides)})", columns, is_topic=True)
    elif kind in ("static", "literal") and all(each in LITERALS for each in columns.values()):
        there = NAMES if kind == "static" else {}
        values = [
            each if there.get(each) == what else f"{draw(st.sampled_from(LITERALS[what]))} AS {each}"
            for each, what in columns.items()
        ]
        second = f"SELECT {', '.join(values)}" + (" FROM names" if kind == "static" else "")
        base = _Source(f"(SELECT {', '.join(columns)} FROM {base.sql} UNION ALL {second})", columns)
    elif kind == "named" and columns.get("k") == "text" and "low" not in columns:
        on = draw(st.sampled_from(["b.k = s.k", "b.k <=> s.k", "collate(b.k, 'UTF8_LCASE') = s.k"]))
        how = draw(st.sampled_from(["JOIN", "LEFT JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"]))
        more = "" if how.endswith(("SEMI JOIN", "ANTI JOIN")) else ", s.low"
        taken = ", ".join(f"b.{each}" for each in columns)
        columns = {**columns, **({"low": "int"} if more else {})}
        base = _Source(
            f"(SELECT {taken}{more} FROM {base.sql} b {how} names s ON {on})", columns, is_topic=base.is_topic
        )
    if draw(st.integers(0, 2)):
        return base
    passed = draw(_condition(base.columns))
    return _Source(
        f"(SELECT {', '.join(f't.{each}' for each in base.columns)} FROM {base.sql} t WHERE {passed})",
        base.columns, base.key, base.is_topic,
    )  # fmt: skip


@st.composite
def _condition(draw: st.DrawFn, columns: Columns, depth: int = 1) -> str:
    """Something that is true, false or NULL of a row of `t`."""
    kinds = ["null", "compared", "compared", "in", "static in", "static limit", "topic exists", "collated"]
    kind = draw(st.sampled_from(kinds + (["not", "and", "or"] if depth else [])))
    if kind == "not":
        return f"NOT ({draw(_condition(columns, depth - 1))})"
    if kind in ("and", "or"):
        left, right = draw(_condition(columns, depth - 1)), draw(_condition(columns, depth - 1))
        return f"({left} {kind.upper()} {right})"
    texts, numbers = _of(columns, "text"), _of(columns, "int")
    if kind == "collated" and texts:
        return f"collate(t.{draw(st.sampled_from(texts))}, 'UTF8_LCASE') = 'A'"
    if kind == "static in" and texts:
        asked = draw(st.sampled_from(["IN", "NOT IN"]))
        known = draw(st.sampled_from(["", " WHERE k IS NOT NULL"]))
        return f"t.{draw(st.sampled_from(texts))} {asked} (SELECT k FROM names{known})"
    if kind == "static limit" and numbers:
        return f"t.{draw(st.sampled_from(numbers))} > (SELECT min(low) FROM names)"
    if kind == "topic exists" and numbers:
        asked = draw(st.sampled_from(["EXISTS", "NOT EXISTS"]))
        return f"{asked} (SELECT 1 FROM others o WHERE o.n = t.{draw(st.sampled_from(numbers))} AND o.ok)"
    compared = _of(columns, *COMPARED)
    if kind in ("compared", "in") and compared:
        name = draw(st.sampled_from(compared))
        literals = st.sampled_from(LITERALS[columns[name]])
        if kind == "in":
            return f"t.{name} IN ({draw(literals)}, {draw(literals)})"
        operator = draw(st.sampled_from(["<", ">=", "=", "<=>", "<>"]))
        return f"t.{name} {operator} {draw(literals)}"
    return f"t.{draw(st.sampled_from([*columns]))} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"


@st.composite
def _aggregates(draw: st.DrawFn, name: str, columns: Columns) -> tuple[list[str], Columns]:
    """Some aggregates, and what they give."""
    numbers, ordered = _of(columns, "int", "decimal"), _of(columns, *COMPARED, "bytes", "flag")
    choices: list[tuple[str, str]] = [("count(*)", "int")] * 3
    choices += [(f"sum({each})", _summed(columns[each])) for each in [*numbers, *_of(columns, "double")]] * 2
    choices += [(f"{how}({each})", columns[each]) for how in ("min", "max") for each in ordered]
    choices += [(f"count({each})", "int") for each in columns]
    choices += [(f"count(DISTINCT {each})", "int") for each in columns if columns[each] != "double"]
    choices += [(f"bit_xor({each})", "int") for each in _of(columns, "int")]
    choices += [(f"every({each})", "flag") for each in _of(columns, "flag")]
    choices += [(f"count_if({each} > 0)", "int") for each in numbers]
    choices += [(f"count(DISTINCT collate({each}, 'UTF8_LCASE'))", "int") for each in _of(columns, "text")]
    choices += [(f"sum({each}) FILTER (WHERE {each} > 0)", _summed(columns[each])) for each in numbers]
    choices += [(f"avg({each})", "double") for each in _of(columns, "int")]
    choices += [(f"array_sort(collect_set({each}))", "array") for each in _of(columns, "int", "text")]
    chosen = draw(st.lists(st.sampled_from(choices), min_size=1, max_size=3, unique=True))
    made = {f"{name}_a{number}": kind for number, (_, kind) in enumerate(chosen)}
    return [f"{sql} AS {alias}" for (sql, _), alias in zip(chosen, made, strict=True)], made


def _summed(kind: str) -> str:
    return {"decimal": "wide"}.get(kind, kind)


@st.composite
def _groups(draw: st.DrawFn, name: str, source: _Source, known: Sequence[SqlView]) -> SqlView:
    """An aggregation by some columns, or expressions of them, perhaps with a HAVING."""
    names = [each for each, kind in source.columns.items() if kind != "array"]
    by = draw(st.lists(st.sampled_from(names), max_size=2, unique=True))
    keys: Columns = {}
    parts = []
    for number, column in enumerate(by):
        kind = source.columns[column]
        made = {
            "text": [(column, "text"), (f"upper({column})", "text")],
            "time": [(column, "time"), (f"date_trunc('hour', {column})", "time")],
            "int": [(column, "int"), (f"{column} % 2", "int"), (f"coalesce({column}, 0)", "int")],
        }.get(kind, [(column, kind)])
        expression, kind = draw(st.sampled_from(made))
        keys[f"{name}_k{number}"] = kind
        parts.append(f"{expression} AS {name}_k{number}")
    wanted, made_of = draw(_aggregates(name, source.columns))
    grouped = f" GROUP BY {', '.join(str(number + 1) for number in range(len(parts)))}" if parts else ""
    having = draw(st.sampled_from(["", "", "", " HAVING count(*) > 1", " HAVING count(*) < 3"]))
    sql = f"SELECT {', '.join([*parts, *wanted])} FROM {source.sql}{grouped}{having}"
    return SqlView(name, sql, {**keys, **made_of}, (*keys,))


@st.composite
def _windows(draw: st.DrawFn, name: str, source: _Source, known: Sequence[SqlView]) -> SqlView:
    """An aggregation by one or two windows, or over a view of windows by larger ones."""
    wanted, made = draw(_aggregates(name, {each: kind for each, kind in source.columns.items() if each != "w"}))
    lengths = st.sampled_from(WINDOWS)
    if "w" in source.columns:
        parts, inner = [f"window(w.start, {draw(lengths)}) AS w"], source.sql
        keys: Columns = {"w": "window"}
    elif draw(st.integers(0, 3)):
        parts, inner = [f"window(time, {draw(lengths)}) AS w"], source.sql
        keys = {"w": "window"}
    else:
        inner = f"(SELECT *, window(time, {draw(lengths)}) AS w1 FROM {source.sql})"
        inner = f"(SELECT *, window(w1.start, {draw(lengths)}) AS w2 FROM {inner})"
        parts, keys = ["w2 AS w", f"w1.end AS {name}_k1"], {"w": "window", f"{name}_k1": "time"}
    names = [each for each, kind in source.columns.items() if kind not in ("array", "window")]
    if draw(st.booleans()) and names:
        column = draw(st.sampled_from(names))
        parts.append(f"{column} AS {name}_k0")
        keys[f"{name}_k0"] = source.columns[column]
    grouped = ", ".join(str(number + 1) for number in range(len(parts)))
    having = draw(st.sampled_from(["", "", "", " HAVING count(*) > 1"]))
    sql = f"SELECT {', '.join([*parts, *wanted])} FROM {inner} GROUP BY {grouped}{having}"
    return SqlView(name, sql, {**keys, **made}, (*keys,))


@st.composite
def _rows(draw: st.DrawFn, name: str, source: _Source, known: Sequence[SqlView]) -> SqlView:
    """Row by row: over views with their key; over topics without one, or with one of which the latest row wins."""
    key = source.key
    if source.is_topic:
        key = draw(st.sampled_from([None, None, ("k",), ("g", "day"), ("pair",)]))
    more = draw(st.sets(st.sampled_from([*source.columns])))
    columns = {each: kind for each, kind in source.columns.items() if each in more or each in (key or ())}
    made: Columns = {}
    parts = []
    numbers = _of(source.columns, "int")
    if numbers:
        made[f"{name}_x"] = "int"
        parts.append(f"{draw(st.sampled_from(numbers))} + 1 AS {name}_x")
    if not columns and not made:
        columns = dict([next(iter(source.columns.items()))])
    copied = ""
    if key is None and draw(st.booleans()):
        made[f"{name}_p"] = "int"
        parts.append(f"CAST({name}_q AS bigint) AS {name}_p")
        copied = f" LATERAL VIEW explode(array(1, 2)) AS {name}_q"
    sql = f"SELECT {', '.join([*columns, *parts])} FROM {source.sql}{copied}"
    return SqlView(name, sql, {**columns, **made}, key)


@st.composite
def _distinct(draw: st.DrawFn, name: str, source: _Source, known: Sequence[SqlView]) -> SqlView:
    names = [each for each, kind in source.columns.items() if kind != "array"]
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
    columns = {each: source.columns[each] for each in chosen}
    return SqlView(name, f"SELECT DISTINCT {', '.join(chosen)} FROM {source.sql}", columns, (*columns,))


@st.composite
def _top(draw: st.DrawFn, name: str, source: _Source, known: Sequence[SqlView]) -> SqlView:
    """The first rows by a total order: of all, or of each value of a column."""
    assert source.key is not None
    sortable = [each for each, kind in source.columns.items() if kind not in ("array", "pair", "flag")]
    first = draw(st.sampled_from([None, *sortable]))
    by = [each for each in sortable if each != first]
    direction = draw(st.sampled_from(["", " DESC"]))
    order = [*([f"{by[0]}{direction}"] if by else []), *source.key]
    part = f"PARTITION BY {first} " if first else ""
    numbered = f"SELECT *, row_number() OVER ({part}ORDER BY {', '.join(order)}) AS {name}_r FROM {source.sql}"
    columns = {**source.columns, f"{name}_r": "int"}
    key = (*([first] if first else []), f"{name}_r")
    return SqlView(name, f"SELECT * FROM ({numbered}) WHERE {name}_r <= 2", columns, key)


@st.composite
def _joined(draw: st.DrawFn, name: str, source: _Source, known: Sequence[SqlView]) -> SqlView:
    """Two aggregations beside each other, by a column of the same type."""
    other: _Source = draw(_source(known))
    kinds = sorted({*source.columns.values()} & {*other.columns.values()} - {"array"})
    if not kinds:
        return draw(_distinct(name, source, known))
    kind = draw(st.sampled_from(kinds))
    ours, theirs = draw(st.sampled_from(_of(source.columns, kind))), draw(st.sampled_from(_of(other.columns, kind)))
    left, of_left = draw(_aggregates(f"{name}_l", source.columns))
    right, of_right = draw(_aggregates(f"{name}_r", other.columns))
    how = draw(st.sampled_from(["JOIN", "LEFT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"]))
    operator = draw(st.sampled_from(["=", "<=>"]))
    has_both = how in ("JOIN", "LEFT JOIN", "FULL JOIN")
    key = "coalesce(l.y, r.y)" if how == "FULL JOIN" else "l.y"
    wanted = [f"{key} AS {name}_k", *of_left, *(of_right if has_both else [])]
    sql = (
        f"SELECT {', '.join(wanted)} FROM (SELECT {ours} AS y, {', '.join(left)} FROM {source.sql} GROUP BY 1) l "
        f"{how} (SELECT {theirs} AS y, {', '.join(right)} FROM {other.sql} GROUP BY 1) r ON l.y {operator} r.y"
    )
    # Two rows of a full join can have the key NULL.
    if how == "FULL JOIN":
        sql += " WHERE l.y IS NOT NULL OR r.y IS NOT NULL"
    columns = {f"{name}_k": kind, **of_left, **(of_right if has_both else {})}
    return SqlView(name, sql, columns, (f"{name}_k",))


def _of(columns: Columns, *kinds: str) -> list[str]:
    return [name for name, each in columns.items() if each in kinds]
