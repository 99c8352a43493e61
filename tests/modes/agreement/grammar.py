"""A small language of views: what each means, as SQL for Spark and as plain Python; and random words of it.

`evaluate` is the meaning: a view over all rows of its inputs, written as simply as can be. It knows nothing of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

Row = dict[str, Any]
Type = Literal["int", "text", "time", "window"]
Columns = dict[str, Type]

TOPICS = ("events", "others")
TOPIC: Columns = {"time": "time", "k": "text", "g": "int", "n": "int"}
DDL = "time timestamp, k string, g bigint, n bigint"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Test:
    """A condition on one column; NULL where the column is, unless it asks for that."""

    column: str
    operator: Literal[">", "=", "<=>", "IS NULL", "IS NOT NULL", "BETWEEN", "LIKE A"]
    """`LIKE A`: is an a, whether small or large."""
    value: int = 0

    @property
    def sql(self) -> str:
        if self.operator == "BETWEEN":
            return f"{self.column} BETWEEN {self.value} AND {self.value + 2}"
        if self.operator == "LIKE A":
            return f"collate({self.column}, 'UTF8_LCASE') = 'A'"
        return f"{self.column} {self.operator}" + (f" {self.value}" if "NULL" not in self.operator else "")

    def holds(self, row: Row) -> bool:
        found = row[self.column]
        if "NULL" in self.operator:
            return (found is None) == (self.operator == "IS NULL")
        if self.operator == "LIKE A":
            return found in ("a", "A")
        if self.operator == "BETWEEN":
            return found is not None and self.value <= found <= self.value + 2
        return found is not None and (found > self.value if self.operator == ">" else found == self.value)


@dataclass(frozen=True)
class Sum:
    """A column, with something added to it."""

    column: str
    operator: Literal["+", "*"]
    value: int

    @property
    def sql(self) -> str:
        return f"{self.column} {self.operator} {self.value}"

    def of(self, row: Row) -> int | None:
        found = row[self.column]
        if found is None:
            return None
        return int(found + self.value if self.operator == "+" else found * self.value)


@dataclass(frozen=True)
class Aggregate:
    """One aggregate of one column; `rows` counts rows and needs none."""

    function: Literal["rows", "count", "sum", "min", "max", "distinct", "bit_xor"]
    column: str | None

    @property
    def sql(self) -> str:
        known = {"rows": "count(*)", "distinct": f"count(DISTINCT {self.column})"}
        return known.get(self.function, f"{self.function}({self.column})")

    @property
    def merges(self) -> bool:
        return self.function != "distinct"

    @property
    def undoes(self) -> bool:
        return self.function in ("rows", "count", "sum")

    def of(self, rows: list[Row]) -> Any:
        if self.column is None:
            return len(rows)
        values = [row[self.column] for row in rows if row[self.column] is not None]
        if self.function in ("count", "distinct"):
            return len(values) if self.function == "count" else len({*values})
        if not values:
            return None
        if self.function == "bit_xor":
            found = 0
            for value in values:
                found ^= value
            return found
        functions: dict[str, Callable[[list[Any]], Any]] = {"sum": sum, "min": min, "max": max}
        return functions[self.function](values)


@dataclass(frozen=True)
class Window:
    """A time window of some minutes, over the column `time`."""

    length: int
    slide: int
    offset: int

    @property
    def sql(self) -> str:
        return f"window(time, '{self.length} minutes', '{self.slide} minutes', '{self.offset} minutes')"

    def of(self, time: datetime | None) -> list[Row]:
        """All windows that hold the moment."""
        if time is None:
            return []
        slide = self.slide * MINUTE
        last = time - (time - EPOCH - self.offset * MINUTE) % slide
        starts = [last - number * slide for number in range(self.length // self.slide + 1)]
        ends = [(start, start + self.length * MINUTE) for start in starts]
        return [{"start": start, "end": end} for start, end in ends if start <= time < end]


@dataclass(frozen=True)
class Rows:
    """Row by row: some pass, some columns are kept, one is computed. Over topics with a key, the latest row wins."""

    name: str
    sources: tuple[str, ...]
    test: Test | None
    kept: Columns
    computed: Sum | None
    key: tuple[str, ...] | None
    copies: int = 1

    @property
    def columns(self) -> Columns:
        more: Columns = {f"{self.name}_x": "int"} if self.computed else {}
        return {**self.kept, **more, **({f"{self.name}_p": "int"} if self.copies > 1 else {})}

    @property
    def used(self) -> set[str]:
        return {
            *self.kept,
            *([self.test.column] if self.test else []),
            *([self.computed.column] if self.computed else []),
        }

    @property
    def sql(self) -> str:
        wanted = [*self.kept, *([f"{self.computed.sql} AS {self.name}_x"] if self.computed else [])]
        copied = ""
        if self.copies > 1:
            wanted.append(f"CAST({self.name}_q AS bigint) AS {self.name}_p")
            copied = f" LATERAL VIEW explode(array({', '.join(map(str, range(self.copies)))})) AS {self.name}_q"
        return f"SELECT {', '.join(wanted)} FROM {_union(self.sources, self.used)}{copied}{_where(self.test)}"

    def of(self, row: Row) -> list[Row]:
        """What one row gives."""
        if self.test is not None and not self.test.holds(row):
            return []
        made = {name: row[name] for name in self.kept}
        if self.computed is not None:
            made[f"{self.name}_x"] = self.computed.of(row)
        return [{**made, f"{self.name}_p": copy} for copy in range(self.copies)] if self.copies > 1 else [made]


@dataclass(frozen=True)
class Groups:
    """One aggregation, perhaps by a time window, perhaps with a HAVING."""

    name: str
    sources: tuple[str, ...]
    test: Test | None
    by: Columns
    window: Window | None
    aggregates: tuple[Aggregate, ...]
    types: tuple[Type, ...]
    """Of the aggregates."""
    having: tuple[Literal["<", ">"], int] | None = None
    fixed: tuple[Row, ...] = ()
    """Rows that stand in the view itself, beside those of its sources."""

    @property
    def made(self) -> dict[str, Aggregate]:
        return {f"{self.name}_a{number}": each for number, each in enumerate(self.aggregates)}

    @property
    def key(self) -> tuple[str, ...]:
        return (*([f"{self.name}_w"] if self.window else []), *self.by)

    @property
    def columns(self) -> Columns:
        window: Columns = {f"{self.name}_w": "window"} if self.window else {}
        return {**window, **self.by, **dict(zip(self.made, self.types, strict=True))}

    @property
    def used(self) -> set[str]:
        tested = [self.test.column] if self.test else []
        return {*self.by, *tested, *(["time"] if self.window else [])} | {a.column for a in self.aggregates if a.column}

    @property
    def sql(self) -> str:
        keys = [*([f"{self.window.sql} AS {self.name}_w"] if self.window else []), *self.by]
        wanted = [*keys, *(f"{each.sql} AS {name}" for name, each in self.made.items())]
        numbers = [str(number + 1) for number in range(len(keys))]
        grouped = f" GROUP BY {', '.join(numbers)}" if numbers else ""
        having = f" HAVING count(*) {self.having[0]} {self.having[1]}" if self.having else ""
        united = _union(self.sources, self.used, self.fixed)
        return f"SELECT {', '.join(wanted)} FROM {united}{_where(self.test)}{grouped}{having}"

    def groups(self, rows: Iterable[Row]) -> list[tuple[Row, list[Row]]]:
        """Each group's key columns, and its rows. An aggregation by nothing has one group, also of no rows."""
        found: dict[str, tuple[Row, list[Row]]] = {} if self.key else {"": ({}, [])}
        for row in rows:
            if self.test is not None and not self.test.holds(row):
                continue
            for window in self.window.of(row["time"]) if self.window else [None]:
                key = {**({f"{self.name}_w": window} if self.window else {}), **{name: row[name] for name in self.by}}
                found.setdefault(repr(key) if key else "", (key, []))[1].append(row)
        return [*found.values()]

    def passes(self, rows: list[Row]) -> bool:
        """What the HAVING says."""
        if self.having is None:
            return True
        return len(rows) < self.having[1] if self.having[0] == "<" else len(rows) > self.having[1]


@dataclass(frozen=True)
class Joined:
    """How many rows each value has on the left, and their sum on the right, if there is one.

    Or only how many, of those values that are on the right, or are not.
    """

    name: str
    sources: tuple[str, ...]
    left: str
    right: str
    summed: str
    type: Type
    asked: Literal["EXISTS", "NOT EXISTS", "IN"] | None = None

    @property
    def key(self) -> tuple[str, ...]:
        return (f"{self.name}_k",)

    @property
    def columns(self) -> Columns:
        return {f"{self.name}_k": self.type, f"{self.name}_c": "int", f"{self.name}_s": "int"}

    @property
    def sql(self) -> str:
        left, right = self.sources
        if self.asked is not None:
            inner = (
                f"(SELECT {self.right} FROM {right}"
                + ("" if self.asked == "IN" else f" WHERE {self.right} = l.x")
                + ")"
            )
            return (
                f"SELECT x AS {self.name}_k, count(*) AS {self.name}_c, CAST(NULL AS bigint) AS {self.name}_s "
                f"FROM (SELECT {self.left} AS x FROM {left}) l "
                f"WHERE {'x IN' if self.asked == 'IN' else self.asked} {inner} GROUP BY x"
            )
        return (
            f"SELECT l.x AS {self.name}_k, l.c AS {self.name}_c, r.s AS {self.name}_s "
            f"FROM (SELECT {self.left} AS x, count(*) AS c FROM {left} GROUP BY 1) l "
            f"LEFT JOIN (SELECT {self.right} AS y, sum({self.summed}) AS s FROM {right} GROUP BY 1) r ON l.x = r.y"
        )


View = Rows | Groups | Joined


def evaluate(view: View, inputs: Mapping[str, list[Row]]) -> list[Row]:
    """All rows of the view, given all rows of its inputs."""
    if isinstance(view, Rows):
        if view.key is None or view.sources[0] not in TOPICS:
            return [made for source in view.sources for row in inputs[source] for made in view.of(row)]
        latest: dict[str, tuple[Any, Row]] = {}
        for number, source in enumerate(view.sources):
            for row in inputs[source]:
                for made in view.of(row):
                    place = (row["_arrived"], number, row["_partition"], row["_offset"])
                    key = repr([made[name] for name in view.key])
                    if key not in latest or place > latest[key][0]:
                        latest[key] = (place, made)
        return [row for _, row in latest.values()]
    if isinstance(view, Groups):
        groups = view.groups([*(row for source in view.sources for row in inputs[source]), *view.fixed])
        return [
            {**key, **{name: each.of(rows) for name, each in view.made.items()}}
            for key, rows in groups
            if view.passes(rows)
        ]
    left, right = (inputs[source] for source in view.sources)
    found = []
    for value in {row[view.left] for row in left}:
        matching = [row for row in right if row[view.right] is not None and row[view.right] == value]
        count = sum(row[view.left] == value for row in left)
        if view.asked is not None and bool(matching) == (view.asked == "NOT EXISTS"):
            continue
        summed = Aggregate("sum", view.summed).of(matching) if view.asked is None else None
        found.append({f"{view.name}_k": value, f"{view.name}_c": count, f"{view.name}_s": summed})
    return found


def _union(sources: tuple[str, ...], columns: set[str], fixed: tuple[Row, ...] = ()) -> str:
    names = ", ".join(sorted(columns) or ["1 AS nothing"])
    sides = [f"SELECT {names} FROM {source}" for source in sources]
    for row in fixed:
        values = [f"{_literal(row[name])} AS {name}" for name in sorted(columns)]
        sides.append(f"SELECT {', '.join(values or ['1 AS nothing'])}")
    return "(" + " UNION ALL ".join(sides) + ")"


def _literal(value: Any) -> str:
    if isinstance(value, dict):
        return f"named_struct({', '.join(f'{name!r}, {_literal(each)}' for name, each in value.items())})"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value:%Y-%m-%d %H:%M:%S}+00:00'"
    return f"CAST({value} AS bigint)" if isinstance(value, int) else repr(value)


def _where(test: Test | None) -> str:
    return f" WHERE {test.sql}" if test is not None else ""
