"""The engine without Spark: keepers, steps, transactions and generations are the real ones, only frames are not.

A frame here is a question that plain Python answers (`grammar`). Nothing else is replaced: what is new, what is
touched, kept beside a view, merged, taken back and written is decided by the code that runs in production.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic
from penstock.log.partition import Offsets
from penstock.modes.engine import Engine, connected_sets
from penstock.pipeline.definition import ViewSpec
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.place import Place
from penstock.plans.decision import Keeping
from penstock.upkeep.compiled import OWN_FIELDS, CompiledView
from penstock.upkeep.fold import COUNT, ROWS, FoldGroups
from penstock.upkeep.fold_rows import ORDER, FoldRows, FoldRowsOfViews
from penstock.upkeep.groups import Groups as KeptGroups
from penstock.upkeep.inputs import Input, TopicInput, ViewInput, with_columns
from penstock.upkeep.kept_rows import KeptRows
from penstock.upkeep.kept_windows import PLACE, KeptWindows
from penstock.upkeep.merge import RULES
from penstock.upkeep.redo import RedoGroups, RedoWindows
from penstock.upkeep.shape import Shape
from penstock.upkeep.step import Keeper, Step
from penstock.upkeep.whole import Whole
from penstock.views.store import Store, open_store
from tests.modes.agreement.grammar import TOPIC, TOPICS, Aggregate, Columns, Groups, Joined, Row, Rows, View, evaluate

How = Literal["fold", "window", "group", "whole"]
MOMENT = pa.timestamp("us", tz="UTC")
TYPES = {
    "int": pa.int64(),
    "text": pa.string(),
    "time": MOMENT,
    "window": pa.struct([("start", MOMENT), ("end", MOMENT)]),
}
RULE_OF = {"rows": "count"}


@dataclass(frozen=True)
class Kept:
    """A view and how it is kept."""

    view: View
    how: How
    late: Literal["correct", "drop"] = "correct"
    is_traced: bool = True
    """Whether redone rows carry their group; else what they were is computed again."""
    is_named: bool = False
    """Whether groups are found as expressions are, by a job of their own."""


def ways(view: View) -> list[How]:
    """The ways in which this view can be kept."""
    over_topics = view.sources[0] in TOPICS
    if isinstance(view, Joined):
        return ["group", "whole"]
    if isinstance(view, Rows):
        return ["fold"] if over_topics else ["fold", "whole", *(["group"] if view.key else [])]  # type: ignore[list-item]
    found: list[How] = ["whole"]
    if (
        view.having is None
        and not view.fixed
        and all(each.merges if over_topics else each.undoes for each in view.aggregates)
    ):
        found.append("fold")
    if view.window is not None and over_topics:
        found.append("window")
    return [*found, "group"] if view.by else found


@dataclass(frozen=True)
class Frame:
    """What a step wants to know; answered where small plans are."""

    answer: Callable[[], pa.Table]
    was_small: bool = False

    def ready(self) -> None:
        """There is no plan that could be."""

    def by_spark(self) -> pa.Table:
        return self.answer()


@dataclass(frozen=True)
class Question:
    """Stands for a prepared plan: what to compute of the rows that it is given."""

    compute: Callable[[Mapping[str, pa.Table]], pa.Table]

    def ask(self, frames: Mapping[str, Frame], *, in_one_task: bool = False) -> Frame:
        return Frame(lambda: self.compute({name: frame.answer() for name, frame in frames.items()}))


class ModelTopic(TopicInput):
    """A topic whose frames are tables."""

    def new(self, step: Step, view: str) -> Any:
        return self.frame(step, self.new_rows(step))

    def everything(self, step: Step) -> Any:
        part = step.slices[self.topic]
        table = part.topic.slice(None, part.stop, columns=self.needed)
        return self.frame(step, table if self.late == "correct" else table.filter(pc.invert(table.column("_late"))))

    def frame(self, step: Step, rows: pa.Table) -> Any:
        return Frame(lambda: with_columns(rows, self.schema))


class ModelView(ViewInput):
    """A view whose frames are tables."""

    def frame(self, step: Step, rows: pa.Table) -> Any:
        return Frame(lambda: with_columns(rows, self.schema))


def compiled(kept: Sequence[Kept]) -> dict[str, CompiledView]:
    """The views, ready to be kept."""
    done: dict[str, CompiledView] = {}
    columns: dict[str, Columns] = dict.fromkeys(TOPICS, TOPIC)
    for each in kept:
        done[each.view.name] = _Compiler(each, columns, done).compile()
        columns[each.view.name] = each.view.columns
    return done


@dataclass(frozen=True)
class _Compiler:
    kept: Kept
    columns: Mapping[str, Columns]
    done: Mapping[str, CompiledView]

    @property
    def view(self) -> View:
        return self.kept.view

    def compile(self) -> CompiledView:
        view, how = self.view, self.kept.how
        inputs: dict[str, Input] = {name: self._input(name) for name in view.sources}
        shape, keeper, rows = getattr(self, f"_{how}")(inputs)
        place = Place("views.py", 1, "")
        unused: Any = None
        spec = ViewSpec(
            view.name, view.sources, view.key, {}, {}, self.kept.late, None, None, None, None, None, view.sql, place
        )
        told: Literal["fold", "redo", "whole"] = how if how in ("fold", "whole") else "redo"
        return CompiledView(spec, Keeping(told, "", None), view.name, shape, unused, keeper, inputs, rows, unused, {})

    def _input(self, name: str) -> Input:
        own = OWN_FIELDS if name in TOPICS else []
        schema = from_arrow_schema(pa.schema([*schema_of(self.columns[name]), *own]))
        used = {self.view.left, self.view.right, self.view.summed} if isinstance(self.view, Joined) else self.view.used
        if name in TOPICS:
            needed = tuple(each for each in TOPIC if each in used or each == "time")
            return ModelTopic(name, name, schema, needed, self.kept.late, "time")
        return ModelView(
            name, self.done[name].shape, schema, tuple(each for each in self.columns[name] if each in used)
        )

    def _shape(self, hidden: pa.Schema | None = None, *, has_group: bool = False) -> Shape:
        place, key = Place("views.py", 1, ""), self.view.key or ()
        return Shape(self.view.name, place, key, schema_of(self.view.columns), hidden or pa.schema([]), has_group)

    def _question(
        self, more: Columns | None = None, rows: Callable[[Mapping[str, list[Row]]], list[Row]] | None = None
    ) -> Any:
        schema = schema_of({**self.view.columns, **(more or {})})
        find = rows or (lambda inputs: _as_spark(self.view, inputs))
        return Question(
            lambda tables: pa.Table.from_pylist(find({n: t.to_pylist() for n, t in tables.items()}), schema=schema)
        )

    # --- fold ---

    def _fold(self, inputs: Mapping[str, Input]) -> tuple[Shape, Keeper, tuple[KeptRows, ...]]:
        view, has_view = self.view, any(isinstance(each, ViewInput) for each in inputs.values())
        keeper: Any
        if isinstance(view, Groups):
            rules = {name: RULES[RULE_OF.get(each.function, each.function)] for name, each in view.made.items()}
            sums = tuple(name for name, each in view.made.items() if each.function == "sum") if has_view else ()
            counts = [ROWS, *map(COUNT.format, sums)] if has_view else []
            shape = self._shape(pa.schema([(name, pa.int64()) for name in counts]))
            question = self._question({f"_{name}": "int" for name in counts}, lambda rows: _counted(view, sums, rows))
            keeper = FoldGroups(shape, question, inputs, rules, sums, has_view)
        elif has_view:
            keeper = FoldRowsOfViews(self._shape(), self._question(), inputs)
        else:
            assert isinstance(view, Rows)
            carried: Columns = {"__partition": "int", "__offset": "int", "__arrived": "time", "__topic": "int"}
            question = self._question(carried, lambda rows: _carried(view, rows))
            has_key = view.key is not None
            keeper = FoldRows(self._shape(ORDER if has_key else None), question, inputs, has_key)
        return keeper.shape, keeper, ()

    # --- redo ---

    def _window(self, inputs: Mapping[str, Input]) -> tuple[Shape, Keeper, tuple[KeptWindows, ...]]:
        view = self.view
        assert isinstance(view, Groups)
        shape = self._shape(has_group=True)
        own = KeptGroups((f"{view.name}_w",), (TYPES["window"],))
        assert view.window is not None
        kept = {name: self._kept_windows(name, each) for name, each in inputs.items()}
        whole = Whole(shape, self._question(), inputs, own)
        return shape, RedoWindows(whole, kept, view.window.length * 60_000_000), tuple(kept.values())

    def _group(self, inputs: Mapping[str, Input]) -> tuple[Shape, Keeper, tuple[KeptRows, ...]]:
        view = self.view
        if isinstance(view, Joined):
            by: dict[str, tuple[str, ...]] = {
                name: (column,) for name, column in zip(view.sources, (view.left, view.right), strict=True)
            }
            output = view.key
        else:
            output = tuple(view.by) if isinstance(view, Groups) else view.key or ()
            by = dict.fromkeys(view.sources, output)
        kinds = tuple(TYPES[view.columns[name]] for name in output)
        shape = self._shape(has_group=self.kept.is_traced)
        whole = Whole(shape, self._question(), inputs, KeptGroups(output, kinds) if self.kept.is_traced else None)
        kept = {name: self._kept_rows(name, each) for name, each in inputs.items()}
        named: dict[str, Any] = {}
        if self.kept.is_named:
            named = {name: Question(lambda tables, n=name, c=c: tables[n].select(list(c))) for name, c in by.items()}  # type: ignore[misc]
        groups = {name: KeptGroups(columns, kinds) for name, columns in by.items()}
        return shape, RedoGroups(whole, groups, named, kept), tuple(kept.values())

    def _kept_rows(self, name: str, each: Input) -> KeptRows:
        columns = schema_of({column: self.columns[name][column] for column in each.needed})
        time = "time" if isinstance(each, TopicInput) else None
        return KeptRows(f"{self.view.name}__{name}", columns, time, isinstance(each, ViewInput))

    def _kept_windows(self, name: str, each: Input) -> KeptWindows:
        assert isinstance(self.view, Groups)
        assert self.view.window is not None
        columns = schema_of({column: self.columns[name][column] for column in each.needed})
        place = [field for field in OWN_FIELDS if field.name in PLACE]
        minute = 60_000_000
        slide, offset = self.view.window.slide * minute, self.view.window.offset * minute
        return KeptWindows(f"{self.view.name}__{name}", pa.schema([*columns, *place]), "time", slide, offset)

    # --- whole ---

    def _whole(self, inputs: Mapping[str, Input]) -> tuple[Shape, Keeper, tuple[KeptRows, ...]]:
        shape = self._shape()
        return shape, Whole(shape, self._question(), inputs), ()


def _as_spark(view: View, inputs: Mapping[str, list[Row]]) -> list[Row]:
    """What the function gives. That the latest of several rows wins is not its doing."""
    return (
        [made for row in _all(view, inputs) for made in view.of(row)]
        if isinstance(view, Rows)
        else evaluate(view, inputs)
    )


def _carried(view: Rows, inputs: Mapping[str, list[Row]]) -> list[Row]:
    own = ("partition", "offset", "arrived")
    return [
        {**made, **{f"__{name}": row[f"_{name}"] for name in own}, "__topic": number}
        for number, source in enumerate(view.sources)
        for row in inputs[source]
        for made in view.of(row)
    ]


def _counted(view: Groups, sums: Sequence[str], inputs: Mapping[str, list[Row]]) -> list[Row]:
    """The groups, with how many rows each has, and how many values each of its sums."""
    found = []
    for key, rows in view.groups(_all(view, inputs)):
        made = {name: each.of(rows) for name, each in view.made.items()}
        filled = {f"_{COUNT.format(name)}": Aggregate("count", view.made[name].column).of(rows) for name in sums}
        found.append({**key, **made, f"_{ROWS}": len(rows), **filled})
    return found


def _all(view: View, inputs: Mapping[str, list[Row]]) -> Iterator[Row]:
    return (row for source in view.sources for row in inputs[source])


def schema_of(columns: Columns) -> pa.Schema:
    """The types of columns in Arrow."""
    return pa.schema([(name, TYPES[kind]) for name, kind in columns.items()])


# --- running ---


@contextmanager
def open_model(folder: Path, log: FolderLog, kept: Sequence[Kept]) -> Iterator[tuple[Engine, Store]]:
    """An engine over a new database."""
    unused: Any = None
    views = compiled(kept)
    sets = tuple(tuple(views[name] for name in names) for names in connected_sets(views))
    with open_store(f"sqlite:{folder}/views.db") as store, store.own("model") as owner:
        yield Engine(Pipeline("model"), log, store, unused, owner, sets), store


def expected(
    kept: Sequence[Kept], topics: Mapping[str, FolderTopic], until: Mapping[str, Offsets]
) -> dict[str, list[Row]]:
    """What the views hold after these records, however they are kept."""
    records = {name: topic.slice(None, until[name]).to_pylist() for name, topic in topics.items()}
    timely = {name: [row for row in rows if not row["_late"]] for name, rows in records.items()}
    found: dict[str, list[Row]] = {}
    for each in kept:
        read = {**(records if each.late == "correct" else timely), **found}
        found[each.view.name] = evaluate(each.view, {name: read[name] for name in each.view.sources})
    return found
