"""Which rows of a view are meant: by key, by time, by what is in them; in an order, a page at a time.

Names come from the catalog, values are parameters of the statement. A page goes on after the last row of the one
before it, by its place in the order, so pages of a view that changes meanwhile neither repeat nor pass over a row that
stays where it is.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from penstock.errors import KeyValueError, RequestRefused, UnknownViewColumn
from penstock.views.find import KEY, NULL, StoredView, conditions, row_of_key
from penstock.views.store import In, Snapshot
from penstock.views.texts import storable
from penstock.views.values import Physical, to_plain

_CONDITION = re.compile(r"(?P<column>.+?)(?P<sign>\^=|!=|<=|>=|=|<|>)(?P<value>.*)", re.DOTALL)
_SQL_TYPES: dict[str, sa.types.TypeEngine[Any]] = {
    "boolean": sa.Boolean(),
    "integer": sa.BigInteger(),
    "real": sa.Double(),
    "text": sa.Text(),
    "binary": sa.LargeBinary(),
    "decimal": sa.Numeric(),
    "date": sa.Date(),
}
_PAGE_TYPES: dict[str, type] = {
    "boolean": bool,
    "integer": int,
    "real": float,
    "text": str,
    "binary": bytes,
    "decimal": Decimal,
    "timestamp": datetime,
    "date": date,
}
ROWS_AT_ONCE = 200
PAGE_BYTES_MAX = 16 << 20
PAGE_LENGTH_MAX = 24_000
"""The longest `page`: with it a request must fit into a head."""
"""A page ends early once it is larger than this; the rest of its rows are on the next."""
_PAGE_HINT = "expected: what the answer before it gave as `next`, and everything else as it was asked for there"


@dataclass(frozen=True)
class Wanted:
    """What is asked of a view."""

    key: Sequence[str] = ()
    """Values of the key in its order, or COLUMN=VALUE; a part will do."""
    where: Sequence[str] = ()
    """COLUMN, a sign (= != < <= > >= ^=) and a value; all must hold. `^=`: a text begins so."""
    since: str | None = None
    until: str | None = None
    by: str | None = None
    """The column of time that `since` and `until` are about; else the first window, or time, of the key."""
    order: str | None = None
    limit: int = 100
    page: str | None = None

    @property
    def digest(self) -> str:
        """The same for the same question, whatever the page."""
        asked = (list(self.key), list(self.where), self.since, self.until, self.by, self.order)
        return hashlib.blake2b(json.dumps(asked).encode(), digest_size=6).hexdigest()


@dataclass(frozen=True)
class Found:
    """Rows of a view, in order, and where the next page begins."""

    view: StoredView
    rows: pa.Table
    next: str | None


def read_rows(snapshot: Snapshot, view: StoredView, wanted: Wanted) -> Found:
    """One page of the rows that are meant. RequestRefused or UnknownViewColumn says what was wrong."""
    if wanted == Wanted(wanted.key, limit=wanted.limit) and (key := whole_key(view, wanted.key)) is not None:
        return Found(view, row_of_key(snapshot, view, key).select(view.known.schema.names), None)
    question = _Question(view, snapshot.connection.dialect.name)
    source = question.source
    order = question.order(wanted.order)
    statement = sa.select(source.c[KEY], *(expression for expression, _, _ in order)).where(
        *question.key(wanted.key),
        *(condition for text in wanted.where for condition in question.condition(text)),
        *question.times(wanted),
    )
    if wanted.page is not None:
        values, last = _unpacked(view.name, wanted, len(order))
        statement = statement.where(question.after(order, values, last))
    sorting = [(each.desc() if is_down else each.asc()).nulls_last() for each, is_down, _ in order]
    lines = snapshot.connection.execute(statement.order_by(*sorting, source.c[KEY]).limit(wanted.limit + 1)).all()
    has_more, lines = len(lines) > wanted.limit, lines[: wanted.limit]
    rows = _rows_of(snapshot, view, [bytes(line[0]) for line in lines])
    if rows.num_rows < len(lines):
        has_more, lines = True, lines[: rows.num_rows]
    following = _packed(wanted, lines[-1][1:], bytes(lines[-1][0])) if has_more else None
    return Found(view, rows.select(view.known.schema.names), following)


def whole_key(view: StoredView, texts: Sequence[str]) -> dict[str, Any] | None:
    """The key that the texts name, if all of it is there: its row is found at once, however many there are."""
    try:
        found = conditions(view, texts)
    except KeyValueError:
        return None  # What is wrong with it is told by those who look for it.
    given = {each.column.name: each.value for each in found}
    if len(given) != len(found):
        return None
    key: dict[str, Any] = {}
    for name in view.known.key or ():
        parts = [each.name for each in view.table.physical(name)]
        if any(part not in given for part in parts):
            return None
        values = [given[part] for part in parts]
        is_window = len(parts) == 2 and None not in values
        key[name] = dict(zip(("start", "end"), values, strict=True)) if is_window else values[0]
    return key or None


def _rows_of(snapshot: Snapshot, view: StoredView, keys: list[bytes]) -> pa.Table:
    """The rows with these keys, in their order; the first of them only, if they are very large."""
    found = [view.table.schema.empty_table()]
    for start in range(0, len(keys), ROWS_AT_ONCE):
        wanted = pa.array(keys[start : start + ROWS_AT_ONCE], pa.binary(16))
        rows = snapshot.read(view.table, In(KEY, wanted))
        found.append(rows.take(pc.index_in(wanted, value_set=rows.column(KEY).combine_chunks())))
        if sum(each.nbytes for each in found) > PAGE_BYTES_MAX:
            break
    return pa.concat_tables(found)


Ordered = list[tuple[sa.ColumnElement[Any], bool, Physical]]
"""What rows are sorted by: an expression, whether downwards, and the column it is of."""


class _Question:
    """What is asked of one view, as parts of a statement for one database."""

    def __init__(self, view: StoredView, dialect: str) -> None:
        self.view = view
        self.table = view.table
        self.is_sqlite = dialect == "sqlite"
        self.source = sa.table(self.table.name, *(sa.column(each.name) for each in self.table.columns))

    # --- conditions ---

    def key(self, texts: Sequence[str]) -> list[sa.ColumnElement[bool]]:
        """A key or a part of it, as `penstock view show --key` takes it."""
        key = self.view.known.key or ()
        parted = [text.partition("=") for text in texts]
        named = [name if equals and name in key else None for name, equals, _ in parted]
        free = iter([name for name in key if name not in named])
        found = []
        for text, (_, _, rest), name in zip(texts, parted, named, strict=True):
            column = name or next(free, None)
            if column is None:
                raise _refused(
                    f"{text!r} is more than the key of view {self.view.name!r} has columns",
                    f"its key: {', '.join(key) or 'none'}; other columns are asked for by where=",
                )
            found += self._equal(column, rest if name else text)
        return found

    def condition(self, text: str) -> list[sa.ColumnElement[bool]]:
        """A column, a sign and a value."""
        match = _CONDITION.fullmatch(text)
        if match is None:
            raise _refused(
                f"where={text!r} has no sign",
                "expected: COLUMN, one of = != < <= > >= ^= and a value, such as hits>=10",
            )
        column, sign, value = match["column"], match["sign"], match["value"]
        if sign == "=":
            return self._equal(column, value)
        part = self._columns(column)[0]  # Of a window its start counts.
        of = self.source.c[part.name]
        if sign == "!=":
            equal = self._equal(column, value)
            return [sa.not_(sa.and_(*equal))] if value == NULL else [sa.or_(of.is_(None), sa.not_(sa.and_(*equal)))]
        if sign == "^=":
            if part.kind != "text":
                raise _refused(
                    f"column {column!r} is no text", "^= asks how a text begins; for others: = < > and so on"
                )
            given = self._literal(part, value)
            return [sa.func.substr(of, 1, len(value)) == given]
        return [_compare(sign, self._sortable(part), self._sortable_literal(part, value))]

    def times(self, wanted: Wanted) -> list[sa.ColumnElement[bool]]:
        """From a moment on, up to but without another."""
        bounds = [(">=", wanted.since), ("<", wanted.until)]
        if wanted.by is None and wanted.since is None and wanted.until is None:
            return []
        part = self._time(wanted.by)
        of = self._sortable(part)
        return [_compare(sign, of, self._sortable_literal(part, text)) for sign, text in bounds if text is not None]

    def _equal(self, column: str, text: str) -> list[sa.ColumnElement[bool]]:
        parts = self._columns(column)
        if text == NULL:
            return [self.source.c[part.name].is_(None) for part in parts]
        texts = [text]
        if len(parts) == 2:
            start, dots, end = text.partition("..")
            texts = [start, end] if dots else [start]
        pairs = zip(parts, texts, strict=False)
        return [self.source.c[part.name] == self._literal(part, each) for part, each in pairs]

    def _time(self, by: str | None) -> Physical:
        if by is not None:
            part = self._columns(by)[0]
            if part.kind not in ("timestamp", "date"):
                raise _refused(f"column {by!r} is no time", f"its type: {part.type}; for other ranges: where={by}>=...")
            return part
        names = [*self.view.windows, *(self.view.known.key or ())]
        parts = [self._columns(name)[0] for name in names]
        part_of_time = next((part for part in parts if part.kind in ("timestamp", "date")), None)
        if part_of_time is None:
            raise _refused(
                f"view {self.view.name!r} has no window, and no time in its key",
                "say which column from= and to= are about: by=COLUMN",
            )
        return part_of_time

    # --- order and pages ---

    def order(self, order: str | None) -> Ordered:
        """By a column (`-name`: downwards), or by the key. Rows that are equal in it go by their hash."""
        if order is None:
            names = [*(self.view.known.key or ())]
            parts = [part for name in names for part in self._columns(name) if part.kind != "json"]
            return [(self._sortable(part), False, part) for part in parts]
        name, is_down = (order[1:], True) if order.startswith("-") else (order, False)
        parts = list(self._columns(name))
        if any(part.kind == "json" for part in parts):
            raise _refused(f"rows have no order by column {name!r}", f"its type: {parts[0].type}; choose another one")
        return [(self._sortable(part), is_down, part) for part in parts]

    def after(self, order: Ordered, values: Sequence[Any], last: bytes) -> sa.ColumnElement[bool]:
        """Rows that come after the one with these values, NULL being the last of all values."""
        if not order:
            return self.source.c[KEY] > sa.literal(last, sa.LargeBinary())
        (expression, is_down, part), value = order[0], values[0]
        rest = self.after(order[1:], values[1:], last)
        if value is None:
            return sa.and_(expression.is_(None), rest)
        given = self._bound(part, self._of_page(part, value))
        beyond = expression < given if is_down else expression > given
        return sa.or_(beyond, expression.is_(None), sa.and_(expression == given, rest))

    def _of_page(self, part: Physical, value: Any) -> Any:
        """A value that a page brought along: it must be what the database gives, for anybody may have written it."""
        if self.is_sqlite:
            return value
        if part.kind == "boolean" and isinstance(value, int):
            return bool(value)
        if not isinstance(value, _PAGE_TYPES[part.kind]) or (isinstance(value, str) and "\0" in value):
            raise _refused(f"a page of view {self.view.name!r} cannot begin at {value!r}", _PAGE_HINT)
        return value

    # --- columns and values ---

    def _columns(self, name: str) -> tuple[Physical, ...]:
        known = {*self.view.known.schema.names, *(each.name for each in self.table.columns)} - {KEY}
        if name not in known:
            raise UnknownViewColumn(self.view.name, name, sorted(known))
        return self.table.physical(name)

    def _sortable(self, part: Physical) -> sa.ColumnElement[Any]:
        of: sa.ColumnElement[Any] = self.source.c[part.name]
        # Decimals are text in SQLite, and '9' comes after '10'.
        return sa.cast(of, sa.REAL) if part.kind == "decimal" and self.is_sqlite else of

    def _sortable_literal(self, part: Physical, text: str) -> sa.ColumnElement[Any]:
        if part.kind == "decimal" and self.is_sqlite:
            return self._bound(part, float(self._value(part, text).as_py()))
        return self._literal(part, text)

    def _literal(self, part: Physical, text: str) -> sa.ColumnElement[Any]:
        value = self._value(part, text)
        if self.is_sqlite or part.kind == "text":  # Where everything is a number, text or bytes.
            plain = to_plain(pa.array([value.as_py()] if part.kind == "binary" else [value], part.type))
            [found] = plain.array.to_pylist()
            if plain.misfits:
                raise self._unfit(part, text)
            return self._bound(part, "NaN" if found != found else found)
        try:
            return self._bound(part, value.as_py())
        except (ValueError, OverflowError):
            raise self._unfit(part, text) from None

    def _bound(self, part: Physical, value: Any) -> sa.ColumnElement[Any]:
        if self.is_sqlite:
            return sa.literal(value)
        if part.kind == "timestamp":
            return sa.literal(value, sa.DateTime(timezone=part.type.tz is not None))
        return sa.literal(value, _SQL_TYPES[part.kind])

    def _value(self, part: Physical, text: str) -> Any:
        """The text as a value of the column."""
        if part.kind == "json" or "\0" in text:
            raise self._unfit(part, text)
        try:
            if part.kind == "binary":
                return pa.scalar(bytes.fromhex(text), part.type)
            if part.kind == "timestamp":
                moment = datetime.fromisoformat(text)
                offset = moment.utcoffset()
                naive = moment.replace(tzinfo=None) - offset if offset is not None else moment
                return pa.scalar(naive, pa.timestamp("us")).cast(pa.int64()).cast(part.type)
            value = pa.scalar(text).cast(part.type)
            value.as_py()
            return value
        except (ValueError, OverflowError, pa.ArrowException):
            raise self._unfit(part, text) from None

    def _unfit(self, part: Physical, text: str) -> RequestRefused:
        return _refused(
            f"{text!r} cannot be in column {part.logical!r} of view {self.view.name!r}",
            f"its type: {part.type}; times as 2026-01-01T12:00:00Z, windows as START or START..END, NULL for none",
        )


def _compare(sign: str, left: sa.ColumnElement[Any], right: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    found: dict[str, sa.ColumnElement[bool]] = {
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }
    return found[sign]


def _refused(found: str, expected: str) -> RequestRefused:
    return RequestRefused(400, found, expected)


# --- pages ---

_READERS: dict[str, Any] = {
    "i": int,
    "f": float,
    "s": str,
    "d": Decimal,
    "t": datetime.fromisoformat,
    "D": date.fromisoformat,
    "x": bytes.fromhex,
}


def _packed(wanted: Wanted, values: Sequence[Any], key: bytes) -> str:
    document = json.dumps([wanted.digest, [_to_text(each) for each in values], key.hex()], separators=(",", ":"))
    packed = base64.urlsafe_b64encode(document.encode()).decode().rstrip("=")
    if len(packed) > PAGE_LENGTH_MAX:
        raise RequestRefused(
            413,
            f"the last row of this page has {len(packed):,} characters in the columns that it is sorted by",
            "nobody could ask for the page after it: raise limit=, narrow it with where=, or sort by another column",
        )
    return packed


def _to_text(value: Any) -> list[str] | None:
    if value is None:
        return None
    if isinstance(value, int):
        return ["i", str(int(value))]
    if isinstance(value, bytes | memoryview):
        return ["x", bytes(value).hex()]
    if isinstance(value, datetime | date):
        return ["t" if isinstance(value, datetime) else "D", value.isoformat()]
    return [{float: "f", Decimal: "d"}.get(type(value), "s"), str(value)]


def _unpacked(view: str, wanted: Wanted, count: int) -> tuple[list[Any], bytes]:
    """What `_packed` made. Whatever else somebody wrote there is refused."""
    try:
        page = str(wanted.page)
        digest, texts, key = json.loads(base64.urlsafe_b64decode(page + "=" * (-len(page) % 4)))
        values = [None if each is None else _READERS[each[0]](each[1]) for each in texts]
        last = bytes.fromhex(key)
    except (ValueError, KeyError, TypeError, IndexError, ArithmeticError, RecursionError):
        raise _refused(f"page={wanted.page!r} is no page of view {view!r}", _PAGE_HINT) from None
    if any(isinstance(each, str) and each != storable(each) for each in values):
        raise _refused(f"page={wanted.page!r} is no page of view {view!r}", _PAGE_HINT)
    is_too_large = any(isinstance(each, int) and abs(each) >= 1 << 63 for each in values)
    if digest != wanted.digest or len(values) != count or is_too_large:
        raise _refused(f"page={wanted.page!r} belongs to another question than this one", _PAGE_HINT)
    return values, last
