"""The catalog: which generations of which views there are, and how far each has come.

Views that are connected through views are one *set*: they share a fence, are built together and switched in together.
A set has generations, numbered from 1 on. Each is `building`, `ready` (complete, and waiting to be switched in),
`live` (the one people read; at most one), `old` (kept for a rollback) or `batch`: the lower one of a pair that is read
as one. The upper one, the speed part, has a state of its own, names the number `beneath` it, and counts for both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

import pyarrow as pa
from sqlalchemy import Connection, Row, and_, bindparam, delete, func, insert, select, update

from penstock.clock import now_us
from penstock.errors import FenceMoved, UnknownView, ViewTaken, require
from penstock.views.fence import Fence
from penstock.views.system_tables import GENERATIONS, VIEWS

Layers = tuple[int, ...]
"""The number of a generation, and of the one that lies beneath it, if there is one."""

State = Literal["building", "ready", "live", "old", "batch"]

_DROPPED = "dropped"
"""State of a row that only remembers the greatest number a set has had, so that it is not given out again."""

_G, _V = GENERATIONS.c, VIEWS.c
_NUMBERED = (_G.pipeline, _G.set_name, _G.number)

# Built once: these run in every step, and for every row that somebody asks for.
_FIND = (
    select(GENERATIONS)
    .join(VIEWS, and_(_V.pipeline == _G.pipeline, _V.set_name == _G.set_name, _V.number == _G.number))
    .where(_V.view_name == bindparam("view"), _G.state != _DROPPED)
)
_VIEWS_OF = (
    select(VIEWS)
    .where(_V.pipeline == bindparam("of"), _V.set_name == bindparam("set"), _V.number == bindparam("nr"))
    .order_by(_V.position)
)
_SET_FENCE = (
    update(GENERATIONS)
    .where(
        _G.pipeline == bindparam("of"),
        _G.set_name == bindparam("set"),
        _G.number == bindparam("nr"),
        _G.fence == bindparam("from"),
    )
    .values(fence=bindparam("fence"), counters=bindparam("counters"))
)


@dataclass(frozen=True)
class Counters:
    """What a view tells about itself beside its rows, as of its fence."""

    rows: int = 0
    late: int = 0
    """Late events seen: left out, or counted late, as the view says."""
    corrected: int = 0
    """Rows that changed after their window was closed."""


@dataclass(frozen=True)
class KnownView:
    """One view as one generation keeps it."""

    name: str
    fingerprint: str
    """Of everything that makes a generation: plan, lateness, code, tables."""
    schema: pa.Schema
    """The columns people see."""
    kept: str
    """`fold`, `redo` or `whole`."""
    key: tuple[str, ...] | None = None
    """None for a row-wise view without a key."""
    tables: Mapping[str, str] = field(default_factory=dict)
    """The physical tables by what they are for: `rows`, and what is kept beside them."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else is worth remembering; must fit into JSON."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """What the fingerprint is of, by name: so a later run can say what has changed."""


@dataclass(frozen=True)
class Generation:
    """One complete copy of a set of views, with its own tables and its own fence."""

    pipeline: str
    set: str
    number: int
    state: State
    fence: Fence
    views: Mapping[str, KnownView]
    """By name, in topological order."""
    counters: Mapping[str, Counters]
    created_us: int
    switched_us: int | None
    """When it last became live."""
    retired_us: int | None = None
    """When it last was replaced by another one."""
    beneath: int | None = None
    """The number of the batch part that its rows lie on, if it is the speed part of a pair."""

    @property
    def layers(self) -> Layers:
        """The numbers that its tables go by: its own, and that of the part beneath it."""
        return (self.number,) if self.beneath is None else (self.number, self.beneath)

    def moved(self, fence: Fence, counters: Mapping[str, Counters]) -> Generation:
        """The same further on, with the counters of the views that are given."""
        return replace(self, fence=fence, counters={**self.counters, **counters})

    @property
    def fingerprints(self) -> dict[str, str]:
        return {name: view.fingerprint for name, view in self.views.items()}

    @property
    def is_empty(self) -> bool:
        """Nothing was ever stored in it: no step, not even over an empty log, and no rows."""
        return (
            not self.fence.offsets
            and not self.fence.is_static
            and not any(each.rows for each in self.counters.values())
        )

    @property
    def tables(self) -> list[str]:
        """All physical tables of this generation."""
        return [table for view in self.views.values() for table in view.tables.values()]


@dataclass(frozen=True)
class Switched:
    """What a switch changed. The caller makes the names people read point to it, in the same transaction."""

    live: Generation
    old: tuple[Generation, ...]
    """Those that were live before."""
    publish: tuple[KnownView, ...]
    """Their names now stand for these."""
    withdraw: tuple[str, ...]
    """Names that were read before and stand for nothing any more."""


class Catalog:
    """Reads and changes the catalog, inside the caller's transaction: it never commits.

    Whoever changes anything owns the pipeline and has claimed it in this transaction; readers need nothing.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # --- reading ---

    def generations(self, pipeline: str | None = None, set: str | None = None) -> list[Generation]:  # noqa: A002
        """All generations, of one pipeline or one set if given, the oldest of each set first."""
        wanted = [_G.state != _DROPPED]
        wanted += [] if pipeline is None else [_G.pipeline == pipeline]
        wanted += [] if set is None else [_G.set_name == set]
        return self._read(*wanted)

    def read_generation(self, pipeline: str, set: str, number: int) -> Generation | None:  # noqa: A002
        """One generation as it is now; None if it was dropped. Two statements."""
        found = self._read(_G.pipeline == pipeline, _G.set_name == set, _G.number == number, _G.state != _DROPPED)
        return found[0] if found else None

    def live(self, pipeline: str, set: str) -> Generation | None:  # noqa: A002
        """The generation people read; None if the set was never switched in."""
        found = self._read(_G.pipeline == pipeline, _G.set_name == set, _G.state == "live")
        require(len(found) <= 1, f"several generations of {set} are live: {[each.number for each in found]}")
        return found[0] if found else None

    def views(self, pipeline: str) -> dict[str, Generation]:
        """The live generation of each view of a pipeline, by the view's name."""
        live = self._read(_G.pipeline == pipeline, _G.state == "live")
        return {name: each for each in sorted(live, key=_switched) for name in each.views}

    def pipelines(self) -> list[str]:
        """Everything that has views in this database."""
        return list(self._connection.scalars(select(_V.pipeline).distinct().order_by(_V.pipeline)))

    def find_view(self, name: str, pipeline: str | None = None) -> Generation:
        """The generation to read a view from, in whatever pipeline it is: the live one, else the newest there is.

        UnknownView names the nearest of those that are there.
        """
        found = self._connection.execute(_FIND, {"view": name}).all()
        there = [row for row in found if pipeline in (None, row.pipeline)]
        if not there:
            raise UnknownView(name, self.view_names(pipeline))
        best = max(there, key=lambda row: (row.state == "live", row.switched_us or 0, row.created_us, row.number))
        views = self._connection.execute(_VIEWS_OF, {"of": best.pipeline, "set": best.set_name, "nr": best.number})
        return _generation(best, {row.view_name: _from_row(row) for row in views})

    def view_names(self, pipeline: str | None = None) -> list[str]:
        """The names of all views, of one pipeline if given."""
        names = select(_V.view_name).distinct().order_by(_V.view_name)
        return list(self._connection.scalars(names if pipeline is None else names.where(_V.pipeline == pipeline)))

    def taken_names(self, pipeline: str, views: Iterable[str]) -> dict[str, str]:
        """Which of these names views of other pipelines have, and of which."""
        taken = select(_V.view_name, _V.pipeline).where(_V.pipeline != pipeline, _V.view_name.in_([*views]))
        return {row.view_name: row.pipeline for row in self._connection.execute(taken.order_by(_V.view_name))}

    def check_names(self, pipeline: str, views: Iterable[str]) -> None:
        """ViewTaken if another pipeline has a view of one of these names: people could read only one of the two."""
        for name, other in self.taken_names(pipeline, views).items():
            raise ViewTaken(name, pipeline, other)

    # --- changing ---

    def next_number(self, pipeline: str, set: str, views: Iterable[str] = ()) -> int:  # noqa: A002
        """The number that the next `new_generation` of the set will have. No number is given out twice.

        Nor twice for one of the `views`, which may have been in another set before: tables are named after them.
        """
        greatest = select(func.max(_G.number)).where(_G.pipeline == pipeline, _G.set_name == set)
        of_views = select(func.max(_V.number)).where(_V.pipeline == pipeline, _V.view_name.in_(list(views)))
        return max(self._connection.scalar(greatest) or 0, self._connection.scalar(of_views) or 0) + 1

    def new_generation(
        self,
        pipeline: str,
        set: str,  # noqa: A002
        views: Sequence[KnownView],
        *,
        beneath: Generation | None = None,
        created_us: int | None = None,
    ) -> Generation:
        """Enters a generation in the state `building`. Its tables are the caller's business.

        `views` come in topological order. With another one `beneath` it, it begins where that one ends, and that one is
        a batch part from now on. ViewTaken if another pipeline has a view of the same name.
        """
        names = [view.name for view in views]
        self.check_names(pipeline, names)
        generation = Generation(
            pipeline,
            set,
            self.next_number(pipeline, set, names),
            "building",
            Fence() if beneath is None else beneath.fence,
            {view.name: view for view in views},
            {view.name: Counters() for view in views} if beneath is None else beneath.counters,
            now_us() if created_us is None else created_us,
            None,
            beneath=None if beneath is None else beneath.number,
        )
        if beneath is not None:
            self._update(beneath, state="batch")
        place = {"pipeline": pipeline, "set_name": set, "number": generation.number}
        self._connection.execute(
            insert(GENERATIONS),
            {
                **place,
                "state": generation.state,
                "fence": generation.fence.to_json(),
                "counters": _counters_to_json(generation.counters),
                "created_us": generation.created_us,
                "switched_us": None,
                "beneath": generation.beneath,
            },
        )
        self._connection.execute(
            insert(VIEWS), [{**place, "position": position, **_to_row(view)} for position, view in enumerate(views)]
        )
        return generation

    def set_fence(
        self, generation: Generation, fence: Fence, counters: Mapping[str, Counters] | None = None
    ) -> Generation:
        """Moves the fence, and the counters of the views that are given. One statement; returns what is true now.

        FenceMoved if it is not where the generation has it: a commit whose answer was lost came through after all, and
        may have done so only now. What was computed from the old fence must not be stored then.
        """
        moved = generation.moved(fence, counters or {})
        self.set_fences([(generation, moved)])
        return moved

    def set_fences(self, moves: Sequence[tuple[Generation, Generation]]) -> None:
        """The same for several generations, as they were and as they are now, in one go."""
        lines = [
            {
                "of": before.pipeline,
                "set": before.set,
                "nr": before.number,
                "from": before.fence.to_json(),
                "fence": moved.fence.to_json(),
                "counters": _counters_to_json(moved.counters),
            }
            for before, moved in moves
        ]
        if self._connection.execute(_SET_FENCE, lines).rowcount == len(lines):
            return
        for before, moved in moves:
            found = self.read_generation(before.pipeline, before.set, before.number)
            if found is None or found.fence != moved.fence:
                raise FenceMoved(before.pipeline, before.set, before.number)
        raise AssertionError("fewer fences were moved than there are, and all are where they should be")

    def switch(
        self, generation: Generation, *, replaces: Iterable[Generation] = (), switched_us: int | None = None
    ) -> Switched:
        """Makes this the generation people read; the live one of its set becomes old. Also the way back (rollback).

        `replaces` are live generations of other sets whose views are in this one now.
        """
        before = self.live(generation.pipeline, generation.set)
        old = [each for each in (before, *replaces) if each is not None and not _is_same(each, generation)]
        moment = now_us() if switched_us is None else switched_us
        for each in old:
            self._update(each, state="old", retired_us=moment)
        self._update(generation, state="live", switched_us=moment)
        live = self.read_generation(generation.pipeline, generation.set, generation.number)
        assert live is not None, generation
        readable = self.views(generation.pipeline)
        withdrawn = {name: None for each in old for name in each.views if name not in readable}
        return Switched(
            live,
            tuple(replace(each, state="old", retired_us=moment) for each in old),
            tuple(live.views.values()),
            tuple(withdrawn),
        )

    def ready(self, generation: Generation) -> Generation:
        """It is complete, and waits to be switched in."""
        self._update(generation, state="ready")
        return replace(generation, state="ready")

    def drop(self, generation: Generation) -> list[str]:
        """Forgets a generation. Returns its physical tables, for the caller to drop in the same transaction."""
        place = (generation.pipeline, generation.set)
        self._connection.execute(
            delete(VIEWS).where(_V.pipeline == place[0], _V.set_name == place[1], _V.number == generation.number)
        )
        self._update(generation, state=_DROPPED)
        greatest = self.next_number(*place) - 1
        self._connection.execute(
            delete(GENERATIONS).where(
                _G.pipeline == place[0], _G.set_name == place[1], _G.state == _DROPPED, _G.number < greatest
            )
        )
        return generation.tables

    # --- helpers ---

    def _update(self, generation: Generation, **values: Any) -> None:
        changed = self._connection.execute(
            update(GENERATIONS)
            .where(
                _G.pipeline == generation.pipeline,
                _G.set_name == generation.set,
                _G.number == generation.number,
                _G.state != _DROPPED,
            )
            .values(**values)
        )
        require(changed.rowcount == 1, f"generation {generation.number} of {generation.set} is gone or there twice")

    def _read(self, *wanted: Any) -> list[Generation]:
        rows = self._connection.execute(select(GENERATIONS).where(*wanted).order_by(*_NUMBERED)).all()
        if not rows:
            return []
        place = and_(_V.pipeline == _G.pipeline, _V.set_name == _G.set_name, _V.number == _G.number)
        views: dict[tuple[str, str, int], dict[str, KnownView]] = {}
        for row in self._connection.execute(
            select(VIEWS).join(GENERATIONS, place).where(*wanted).order_by(_V.position)
        ):
            views.setdefault((row.pipeline, row.set_name, row.number), {})[row.view_name] = _from_row(row)
        return [_generation(row, views.get((row.pipeline, row.set_name, row.number), {})) for row in rows]


def _generation(row: Row[Any], views: Mapping[str, KnownView]) -> Generation:
    return Generation(
        row.pipeline,
        row.set_name,
        row.number,
        row.state,
        Fence.from_json(row.fence),
        views,
        {name: Counters(*numbers) for name, numbers in json.loads(row.counters).items()},
        row.created_us,
        row.switched_us,
        row.retired_us,
        row.beneath,
    )


def _switched(generation: Generation) -> int:
    return generation.switched_us or 0


def _is_same(left: Generation, right: Generation) -> bool:
    return (left.pipeline, left.set, left.number) == (right.pipeline, right.set, right.number)


def _counters_to_json(counters: Mapping[str, Counters]) -> str:
    return json.dumps(
        {name: (each.rows, each.late, each.corrected) for name, each in counters.items()}, separators=(",", ":")
    )


def _to_row(view: KnownView) -> dict[str, Any]:
    description = {
        "kept": view.kept,
        "key": None if view.key is None else list(view.key),
        "tables": dict(view.tables),
        "details": dict(view.details),
        "parts": dict(view.parts),
    }
    return {
        "view_name": view.name,
        "fingerprint": view.fingerprint,
        "description": json.dumps(description),
        "arrow_schema": view.schema.serialize().to_pybytes(),
    }


def _from_row(row: Row[Any]) -> KnownView:
    return _parsed(row.view_name, row.fingerprint, row.description, bytes(row.arrow_schema))


@lru_cache(maxsize=1024)
def _parsed(name: str, fingerprint: str, text: str, schema: bytes) -> KnownView:
    description = json.loads(text)
    return KnownView(
        name,
        fingerprint,
        pa.ipc.read_schema(pa.py_buffer(schema)),
        description["kept"],
        None if description["key"] is None else tuple(description["key"]),
        description["tables"],
        description["details"],
        description.get("parts", {}),  # Databases of before do not have them.
    )
