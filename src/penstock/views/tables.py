"""What a table of a view is, and which of its rows are meant: said once, for every database."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import require
from penstock.views.values import Physical, Plain, halves, is_window, kind_of, physical_columns, to_plain

Range = tuple[int | None, int | None]
"""From the first up to but without the second, in microseconds (in days' microseconds for dates); None is open."""

_DAY_US = 86_400_000_000
_BOUND_MIN, _BOUND_MAX = -62_135_596_800_000_000, 253_402_300_799_999_999


NAME_MAX = 63
"""The longest name that PostgreSQL tells apart."""


def table_name(*parts: str | int) -> str:
    """A name for a table, made of what it is for; the same parts give the same name, others another.

    >>> table_name("hits", 1)
    'hits__1'
    """
    name = "__".join(map(str, parts))
    if len(name) <= NAME_MAX:
        return name
    return f"{name[: NAME_MAX - 18]}__{hashlib.blake2b(name.encode(), digest_size=8).hexdigest()}"


def kept_name(view: str, name: str) -> str:
    """What the table of the kept rows of an input is called, before its generation is added.

    View `a_` over `b` and view `a` over `_b` would have the same, so the view tells them apart where it ends like that.

    >>> kept_name("hits", "access")
    'hits__access'
    """
    base = f"{view}__{name}"
    return base if not view.endswith("_") else f"{base}__{hashlib.blake2b(view.encode(), digest_size=8).hexdigest()}"


GONE = "_gone"
"""The last column of the upper one of two tables: whether its row only hides the one beneath it."""
COVERED = "_covered"
"""The last column of the lower one: whether the upper one has a row of the same key.

It is all that is ever changed there. Readers could find it out for every row by themselves, in four times the time.
"""


@dataclass(frozen=True)
class StoredTable:
    """A table as it lies in the database: its name, its columns as Arrow has them, and how its rows are found.

    One that has another `beneath` it is two tables that are read as one. What is written goes into the upper one,
    `top`, whose rows count instead of those beneath with the same primary columns; those are only marked as covered.
    """

    name: str
    schema: pa.Schema
    primary: tuple[str, ...] = ()
    """Columns that tell rows apart; never NULL. `_key`, a hash of 16 bytes, for most."""
    indexes: tuple[tuple[str, ...], ...] = ()
    beneath: StoredTable | None = None
    hidden_by: StoredTable | None = None
    """The upper table, of one that lies beneath it."""
    is_upper: bool = False
    """Its last column is `_gone`, or what that is called beside a column of the same name."""
    columns: tuple[Physical, ...] = field(init=False, repr=False, compare=False)
    parts: tuple[StoredTable, ...] = field(init=False, repr=False, compare=False)
    """The tables whose rows together are the rows of this one."""
    likeness: Hashable = field(init=False, repr=False, compare=False)
    """What tables have in common that are written to in the same way: all but the names."""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", physical_columns(self.schema))
        for name in (*self.primary, *(name for each in self.indexes for name in each)):
            self.physical(name)
        parts: tuple[StoredTable, ...] = (self,)
        if self.beneath is not None:
            upper = pa.schema([*self.schema, pa.field(_free(GONE, self.schema.names), pa.bool_())])
            top = StoredTable(table_name(self.name, "speed"), upper, self.primary, self.indexes, is_upper=True)
            parts = (top, replace(self.beneath, hidden_by=top))
        object.__setattr__(self, "parts", parts)
        primary = tuple(map(self.schema.get_field_index, self.primary))
        object.__setattr__(self, "likeness", (tuple(self.schema.types), primary, self.beneath is None))
        object.__setattr__(self, "_hash", hash((self.name, *self.schema.names)))

    def __hash__(self) -> int:
        return self._hash  # Made once: every statement is found by it.

    @property
    def top(self) -> StoredTable:
        """The table that is written to."""
        return self.parts[0]

    @property
    def covered(self) -> str:
        """What the mark of covered rows is called, once another table lies on top of this one."""
        return _free(COVERED, [each.name for each in self.columns])

    @property
    def names(self) -> list[str]:
        """What it is made of in the database, without what lies beneath; in the order in which it can be dropped."""
        return [self.name] if self.beneath is None else [self.name, self.top.name]

    def physical(self, name: str) -> tuple[Physical, ...]:
        """The columns of the database that hold a column of the view; one of them may also be named itself."""
        found = tuple(each for each in self.columns if each.logical == name)
        found = found or tuple(each for each in self.columns if each.name == name)
        assert found, f"table {self.name!r} has no column {name!r}, only {self.schema.names}"
        return found


def _free(name: str, names: Sequence[str]) -> str:
    """The name, or one like it that is not among the others."""
    taken = {each.lower() for each in names}
    while name in taken:
        name += "_"
    return name


@dataclass(frozen=True)
class Unfit:
    """A row that was not written, for the database cannot hold one of its values."""

    row: int
    """Its place among the rows that were given."""
    column: str
    reason: str


@dataclass(frozen=True)
class In:
    """Rows whose column has one of the values; a NULL among them means rows where it is NULL."""

    column: str
    values: pa.Array


@dataclass(frozen=True)
class Ranges:
    """Rows whose time lies in one of the ranges; those without a time only if `with_null` says so."""

    column: str
    ranges: Sequence[Range]
    with_null: bool = False


@dataclass(frozen=True)
class Both:
    """Rows of these groups whose time lies in the ranges: the same for all groups, or one `Ranges` for each value."""

    groups: In
    times: Ranges | Sequence[Ranges]


Where = In | Ranges | Both


@dataclass(frozen=True)
class Lookup:
    """One statement's worth of a condition; the rows of several lookups never overlap.

    Rows where `equal` columns are equal to one line of the parameters, `null` columns are NULL, and `time` is at or
    after `low` and before `high`, as far as those are there. Parameters are plain columns in that order.
    """

    equal: tuple[Physical, ...] = ()
    null: tuple[Physical, ...] = ()
    time: Physical | None = None
    has_low: bool = False
    has_high: bool = False
    parameters: tuple[pa.Array, ...] = field(default=(), compare=False)

    @property
    def shape(self) -> tuple[object, ...]:
        """What a statement depends on, beside the table."""
        names = (tuple(each.name for each in self.equal), tuple(each.name for each in self.null))
        return (*names, self.time.name if self.time else None, self.has_low, self.has_high)


def lookups(table: StoredTable, where: Where | None) -> list[Lookup]:
    """A condition as statements that are the same for every value."""
    if where is None:
        return [Lookup()]
    if isinstance(where, In):
        columns = table.physical(where.column)
        values, has_null = _values(columns, where.values)
        found = [Lookup(equal=columns, parameters=tuple(values))] if len(values[0]) else []
        return [*found, Lookup(null=columns)] if has_null else found
    if isinstance(where, Ranges):
        return _in_ranges(table, where)
    return _in_both(table, where)


def _values(columns: tuple[Physical, ...], values: pa.Array) -> tuple[list[pa.Array], bool]:
    """The values as the database has them, each once and without NULL; and whether NULL was among them."""
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    has_null = values.null_count > 0
    values = values.drop_null()
    if len(columns) == 2:
        assert is_window(values.type), values.type
        plain = [to_plain(each) for each in halves(values)]
    else:
        plain = [to_plain(_as(values, columns[0].type))]
    arrays = [_without_sign_of_zero(each.array) for each in plain]
    table = pa.table(arrays, names=[str(place) for place in range(len(arrays))])
    if any(each.misfits for each in plain):
        table = table.drop_null()  # No row can have a value that does not fit.
    if len(arrays) == 1:
        return [pc.unique(table.column(0))], has_null  # Much quicker than grouping, and nearly all lookups are such.
    table = table.group_by(table.column_names, use_threads=False).aggregate([])
    return [column.combine_chunks() for column in table.columns], has_null


def _as(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    return values if values.type == data_type else values.cast(data_type)


def _without_sign_of_zero(array: pa.Array) -> pa.Array:
    return pc.add(array, pa.scalar(0.0, array.type)) if pa.types.is_floating(array.type) else array


def _in_ranges(table: StoredTable, where: Ranges) -> list[Lookup]:
    (column,) = table.physical(where.column)
    found = [
        Lookup(time=column, has_low=has_low, has_high=has_high, parameters=tuple(bounds))
        for has_low, has_high, bounds, _ in _bounds(column, [_merged(where.ranges)])
    ]
    return [*found, Lookup(null=(column,))] if where.with_null else found


def _in_both(table: StoredTable, where: Both) -> list[Lookup]:
    groups = where.groups.values
    groups = groups.combine_chunks() if isinstance(groups, pa.ChunkedArray) else groups
    each_has_own = not isinstance(where.times, Ranges)
    times = list(where.times) if not isinstance(where.times, Ranges) else [where.times] * len(groups)
    require(len(times) == len(groups), f"{len(times)} ranges of time for {len(groups)} groups")
    if not times:
        return []
    columns = table.physical(where.groups.column)
    (time,) = table.physical(times[0].column)
    if not each_has_own:
        groups, times = (found := pc.unique(groups)), times[: len(found)]
    require(pc.count_distinct(groups, mode="all").as_py() == len(groups), "a group is named twice")
    found = []
    is_null = groups.is_null().to_pylist()
    for wants_null in (False, True):
        chosen = [place for place in range(len(groups)) if is_null[place] is wants_null]
        if not chosen:
            continue
        same = Lookup(null=columns) if wants_null else Lookup(equal=columns)
        values = [] if wants_null else _plain_groups(columns, groups.take(pa.array(chosen)))
        for has_low, has_high, bounds, lines in _bounds(time, [_merged(times[place].ranges) for place in chosen]):
            taken = [each.take(pa.array(lines, pa.int64())) for each in values]
            whole = pa.table([*taken, *bounds], names=[str(n) for n in range(len(taken) + len(bounds))]).drop_null()
            parameters = tuple(column.combine_chunks() for column in whole.columns)
            found.append(replace(same, time=time, has_low=has_low, has_high=has_high, parameters=parameters))
        with_null = [line for line, place in enumerate(chosen) if times[place].with_null]
        if with_null:
            taken = [each.take(pa.array(with_null, pa.int64())) for each in values]
            found.append(replace(same, null=(*same.null, time), parameters=tuple(taken)))
    return found


def _plain_groups(columns: tuple[Physical, ...], groups: pa.Array) -> list[pa.Array]:
    if len(columns) == 2:
        return [to_plain(each).array for each in halves(groups)]
    return [_without_sign_of_zero(to_plain(_as(groups, columns[0].type)).array)]


def _merged(ranges: Iterable[Range]) -> list[Range]:
    """The same moments in ranges that neither overlap nor touch; a bound no time can reach is none."""
    low_first = sorted(
        (_BOUND_MIN - 1 if low is None else low, _BOUND_MAX + 1 if high is None else high) for low, high in ranges
    )
    merged: list[list[int]] = []
    for low, high in low_first:
        if low >= high:
            continue
        if merged and low <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], high)
        else:
            merged.append([low, high])
    return [(None if low < _BOUND_MIN else low, None if high > _BOUND_MAX else high) for low, high in merged]


def _bounds(
    column: Physical, of_lines: Sequence[Sequence[Range]]
) -> Iterable[tuple[bool, bool, list[pa.Array], list[int]]]:
    """The ranges of all lines sorted by which bounds they have: the bounds as plain columns, and each one's line."""
    for has_low in (True, False):
        for has_high in (True, False):
            chosen = [
                (line, low, high)
                for line, ranges in enumerate(of_lines)
                for low, high in ranges
                if (low is not None) is has_low and (high is not None) is has_high
            ]
            if not chosen:
                continue
            lows = [_bound(column, [low for _, low, _ in chosen])] if has_low else []
            highs = [_bound(column, [high for _, _, high in chosen])] if has_high else []
            yield has_low, has_high, [*lows, *highs], [line for line, _, _ in chosen]


def _bound(column: Physical, moments: Sequence[int | None]) -> pa.Array:
    numbers = [each for each in moments if each is not None]
    if kind_of(column.type) == "date":
        return to_plain(pa.array([-(-each // _DAY_US) for each in numbers], pa.int32()).view(pa.date32())).array
    if kind_of(column.type) == "timestamp":
        numbers = [min(max(each, _BOUND_MIN), _BOUND_MAX) for each in numbers]
        return to_plain(pa.array(numbers, pa.int64()).view(column.type)).array
    assert kind_of(column.type) == "integer", f"ranges are of times, not of {column.type}"
    return pa.array(numbers, pa.int64())


def unfits(columns: Sequence[Physical], plain: Sequence[Plain]) -> list[Unfit]:
    """Every row with a value that does not fit, once, with the first such column."""
    found: dict[int, Unfit] = {}
    for column, each in zip(columns, plain, strict=True):
        for row, reason in each.misfits.items():
            found.setdefault(row, Unfit(row, column.logical, reason))
    return [found[row] for row in sorted(found)]
