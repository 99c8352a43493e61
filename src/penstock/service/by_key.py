"""A row by its whole key, out of SQLite: what people ask for most often, and what must be quickest.

One transaction sees one moment. It looks whether anything was committed since the last one; if so it asks the catalog
which generation people read now, and how far that is. So short a read is not worth a thread of its own: all of them are
made in one, see `lane.py`. Whatever is not short or
not plain (a part of a key, a row that is large, a view that was switched since) is `None` here: `rows.py` reads it, in
its own time.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import apsw
import pyarrow as pa
import pyarrow.types as types

from penstock.errors import KafkaRefused, KafkaUnavailable, PenstockError, TopicError
from penstock.modes.lag import topics_of
from penstock.service.answers import as_json, dumps, moment
from penstock.service.records import Handles
from penstock.service.rows import whole_key
from penstock.service.service import Service, file_identity, known_view
from penstock.views.fence import Fence
from penstock.views.find import StoredView
from penstock.views.keys import key_hash
from penstock.views.store import StoredTable
from penstock.views.values import Physical, from_plain, plain_type

ROW_BYTES_MAX = 64 << 10
"""Larger rows are read in a thread."""
SHAPES_MAX = 1000

_NO_BOUNDS = ("0001-01-01T00:00:00", "0001-01-01T00:00:00Z")
"""The end of a window of two NULLs: see `NO_BOUNDS_US` of `penstock.views.values`."""
_LIVE = """
SELECT g.pipeline, g.set_name, g.number, g.created_us, g.fence
FROM _penstock_views v
JOIN _penstock_generations g ON g.pipeline = v.pipeline AND g.set_name = v.set_name AND g.number = v.number
WHERE v.view_name = ?1 AND g.state != 'dropped'
ORDER BY g.state = 'live' DESC, coalesce(g.switched_us, 0) DESC, g.created_us DESC, g.number DESC
LIMIT 1
"""
"""As `Catalog.find_view` chooses."""


@dataclass(frozen=True)
class Answer:
    """A row as JSON, or none, and as of when."""

    as_of: bytes
    body: bytes


class RowsByKey:
    """Finds rows in a SQLite file over one connection that stays open. One thread at a time finds.

    What a view looks like is learned once for each generation (`learn`, which takes a thread); every read checks that
    it is still that generation which people read.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._handles = Handles(service.log)
        self._place = ""
        self._file: tuple[int, int] | None = None
        self._connection: apsw.Connection | None = None
        self._shapes: dict[str, _Shape] = {}
        self._is_elsewhere = False
        """Whether the views are in another kind of database."""

    def find(self, name: str, texts: Sequence[str]) -> Answer | None:
        """The row with this key, as of now. None if it must be looked for in another way."""
        shape = self._shapes.get(name)
        if shape is None or self._connection is None:
            return None
        if file_identity(self._place) != self._file:  # Another file has its name: nothing that was learned counts.
            self.close()
            return None
        key = shape.hash_of(texts)
        if key is None:
            return None
        try:
            self._connection.execute("BEGIN")
            try:
                is_live = self._look(self._connection, shape)
                lines = [self._connection.execute(each, (key,)).fetchall() for each in shape.statements if is_live]
            finally:
                self._connection.execute("COMMIT")
        except apsw.Error:  # Dropped, locked or broken: others know what to do and what to say.
            is_live = False
        if not is_live:
            self._shapes.pop(name, None)
            return None
        rows = shape.rows_of([line for each in lines for line in each])
        return None if rows is None else self._answer(shape, rows)

    def is_new(self, name: str) -> bool:
        """Whether `learn` has yet to be asked about this view."""
        return not self._is_elsewhere and name not in self._shapes

    def is_known(self, name: str) -> bool:
        """Whether `find` may find its rows."""
        return name in self._shapes

    def learn(self, name: str) -> None:
        """Looks at a view, so that `find` finds its rows. Nothing happens for one that is not there, or elsewhere."""
        store = self._service.store()
        self._is_elsewhere = store is not None and store.engine.dialect.name != "sqlite"
        if store is None or self._is_elsewhere:
            return
        with suppress(PenstockError, apsw.Error):
            view = self._service.reading(lambda snapshot: known_view(snapshot, name), name)
            if self._connection is None:
                self._place, self._file = store.place, file_identity(store.place)
                self._connection = apsw.Connection(store.place, flags=apsw.SQLITE_OPEN_READONLY)
            if len(self._shapes) >= SHAPES_MAX:
                self._shapes.clear()
            self._shapes[name] = _Shape(view)

    def close(self) -> None:
        """Lets go of the file."""
        self._shapes.clear()
        if self._connection is not None:
            self._connection.close(force=True)
            self._connection = None

    def _look(self, connection: apsw.Connection, shape: _Shape) -> bool:
        """Whether people still read this generation, whose fence is known then."""
        ((version,),) = connection.execute("PRAGMA data_version").fetchall()
        if shape.version != version:
            found = connection.execute(_LIVE, (shape.name,)).fetchall()
            if not found or found[0][:-1] != shape.generation:
                return False
            shape.move(version, str(found[0][-1]))
        return True

    def _answer(self, shape: _Shape, rows: list[dict[str, Any]]) -> Answer:
        try:
            ends = self._service.prompt.ask(lambda: {each: self._handles.find(each).end() for each in shape.topics})
            as_of = shape.about + b"%d}" % shape.fence.lag_behind(ends)
        except (TopicError, KafkaUnavailable, KafkaRefused):
            as_of = shape.about + b"null}"
        return Answer(as_of, shape.begin + as_of + b',"next":null,"rows":' + dumps(rows) + b"}")


class _Shape:
    """How the rows of one generation of a view are found, and made into JSON; and how far it has come."""

    def __init__(self, view: StoredView) -> None:
        generation = view.generation
        self.name = view.name
        self.generation = (generation.pipeline, generation.set, generation.number, generation.created_us)
        self.topics = topics_of(generation, view.name)
        self.version: object = None
        """What SQLite calls the state of the file that `fence` is of."""
        self.fence = generation.fence
        self.about = b""
        """The beginning of what is said of the fence, up to how far it is behind."""
        self.begin = b'{"view":%b,"as_of":' % dumps(view.name)
        self._view = view
        self._key_types = [view.known.schema.field(name).type for name in view.known.key or ()]
        self._physical = [each for each in view.table.columns if each.logical in view.known.schema.names]
        places = {each.name: place + 1 for place, each in enumerate(self._physical)}
        self._columns = [_Column(view, name, places) for name in view.known.schema.names]
        self.statements = [self._statement(part) for part in view.table.parts]
        """One for each part of a view; at most one of them finds the row."""

    def move(self, version: object, fence: str) -> None:
        """Takes over how far the view has come."""
        self.version = version
        self.fence = Fence.from_json(fence)
        offsets = {topic: dict(self.fence.offsets.get(topic, {})) for topic in self.topics}
        about = {"clock": moment(self.fence.clock_us or None), "offsets": offsets, "generation": self.generation[2]}
        self.about = dumps(about)[:-1] + b',"behind":'

    def hash_of(self, texts: Sequence[str]) -> bytes | None:
        """The hash of the key that these texts name, if they name all of it."""
        key = whole_key(self._view, texts)
        return None if key is None else key_hash(list(key.values()), self._key_types)

    def rows_of(self, lines: Sequence[Sequence[Any]]) -> list[dict[str, Any]] | None:
        """The row as JSON has it, if there is one; None if there is one and it is large."""
        if any(line[0] > ROW_BYTES_MAX for line in lines):
            return None
        return [{each.name: each.value(line) for each in self._columns} for line in lines]

    def _statement(self, part: StoredTable) -> str:
        """Gives how many bytes there are, and each column unless it is large: SQLite need not read it to know."""
        columns, sizes = [], ["0"]
        for each in self._physical:
            column = _quoted(each.name)
            if each.kind in ("boolean", "integer", "real", "timestamp", "date"):
                columns.append(column)
            else:
                sizes.append(f"coalesce(octet_length({column}), 0)")
                columns.append(f"iif(octet_length({column}) <= {ROW_BYTES_MAX}, {column}, NULL)")
        statement = f"SELECT {', '.join([' + '.join(sizes), *columns])} FROM {_quoted(part.name)} WHERE _key = ?1"
        if part.hidden_by is not None:
            statement += f" AND {_quoted(part.covered)} IS FALSE"
        elif part.is_upper:
            statement += f" AND {_quoted(part.columns[-1].name)} IS FALSE"
        return statement


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class _Column:
    """One column of a view: from what SQLite has to what JSON has."""

    def __init__(self, view: StoredView, name: str, places: Mapping[str, int]) -> None:
        self.name = name
        self._parts = [(places[each.name], _converter(each)) for each in view.table.physical(name)]

    def value(self, line: Sequence[Any]) -> Any:
        """The value of this column in a line of a result, as `as_json` has it."""
        found = [None if (value := line[place]) is None else convert(value) for place, convert in self._parts]
        if len(found) == 1:
            return found[0]
        if found[0] is None and found[1] in _NO_BOUNDS:
            return {"start": None, "end": None}
        return None if found == [None, None] else dict(zip(("start", "end"), found, strict=True))


def _converter(column: Physical) -> Callable[[Any], Any]:
    kind = column.type
    if column.kind == "boolean":
        return bool
    if types.is_integer(kind) or types.is_string(kind) or types.is_large_string(kind) or types.is_date32(kind):
        return _itself
    if column.kind == "real":
        return _real
    if column.kind == "decimal":
        return lambda text: str(Decimal(text))
    if column.kind == "timestamp" and kind.tz in (None, "UTC"):
        return _time if kind.tz is None else lambda text: _time(text) + "Z"
    if column.kind == "binary":
        return lambda value: base64.b64encode(value).decode()
    return lambda value: as_json(pa.table({"": from_plain(pa.array([value], plain_type(kind)), kind)}))[0][""]


def _itself(value: Any) -> Any:
    return value


def _real(value: float | str) -> float | str:
    number = float(value)
    return number if math.isfinite(number) else str(number)


def _time(text: str) -> str:
    return text.replace(" ", "T", 1).removesuffix(".000000")
