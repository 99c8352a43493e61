"""What a pipeline consists of, as data: topics, tables, views and alerts.

Definitions are plain values: they can be compared, printed and kept, and nothing happens when one is made. Two are
equal if they say the same; where they stand, and the function object itself, do not count.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, get_args

from penstock.errors import NotADataFrame
from penstock.pipeline.place import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Columns: TypeAlias = str | Sequence[str]
"""One column or several, as users give them."""
Late: TypeAlias = Literal["correct", "drop"]
Kept: TypeAlias = Literal["fold", "redo", "whole"]
LATE: tuple[str, ...] = get_args(Late)
KEPT: tuple[str, ...] = get_args(Kept)
OnError: TypeAlias = Literal["dead_letter", "stop"]
ON_ERROR: tuple[str, ...] = get_args(OnError)
MERGE_RULES = ("count", "sum", "min", "max", "every", "any", "bit_and", "bit_or", "bit_xor")
"""The rules that `merge=` may name for a column."""
ANY_INPUT = "*"
"""Where `within=` names no input, it is kept under this one: it holds for each input that has the columns."""

_temporary_views = threading.Lock()


def bound_name(name: str) -> str:
    """The name under which functions and SQL know a topic, table or view.

    >>> bound_name("web.access-log")
    'web_access_log'
    """
    return name.replace(".", "_").replace("-", "_")


@dataclass(frozen=True)
class TopicSpec:
    """A topic that a pipeline reads; made by the first run if the log does not have it."""

    name: str
    ddl: str
    key: tuple[str, ...]
    event_time: str | None
    lateness: timedelta
    options: Mapping[str, Any] = field(hash=False)
    """What else `Log.create` is given: partitions, retention and the like. Durations are timedeltas."""
    place: Place = field(compare=False)

    @property
    def bound(self) -> str:
        return bound_name(self.name)


@dataclass(frozen=True)
class TableSpec:
    """Reference data that views join: a file, a folder or a database (static), or a topic of changes."""

    name: str
    location: str | None = field(repr=False)
    """As the user wrote it: a path, counted from `base`, or a database url. None for a topic of changes."""
    topic: str | None
    key: tuple[str, ...]
    options: Mapping[str, Any] = field(hash=False)
    place: Place = field(compare=False)
    base: str | None = field(default=None, compare=False)
    """The folder of the file that defines the pipeline; None: the current one."""

    @property
    def bound(self) -> str:
        return self.name

    @property
    def is_static(self) -> bool:
        return self.topic is None


@dataclass(frozen=True)
class ViewSpec:
    """A view: a function of DataFrames or one SQL statement, and what is said about how to keep it."""

    name: str
    inputs: tuple[str, ...]
    """Bound names of topics, tables and views: the function's parameters, or the relations that the SQL reads."""
    key: tuple[str, ...] | None
    """None: not given. (): a view of one row."""
    merge: Mapping[str, str] = field(hash=False)
    within: Mapping[str, tuple[str, ...]] = field(hash=False)
    """SQL expressions by input; under "*" where the user named no input. Empty: not given."""
    late: Late
    kept: Kept | None
    """None: found out from the plan."""
    horizon: timedelta | None
    trigger: timedelta | None
    changelog: str | None
    function: Callable[..., DataFrame] | None = field(compare=False)
    sql: str | None
    place: Place = field(compare=False)
    on_error: OnError = "dead_letter"

    @property
    def bound(self) -> str:
        return self.name

    def build(self, frames: Mapping[str, DataFrame]) -> DataFrame:
        """The view over these frames, by bound name: every input must be there, others are left alone.

        Runs the user's code, so it may raise anything. Any number of threads may build at once; SQL views take turns,
        since temporary views are the session's. NotADataFrame if the function returned something else.
        """
        given = {name: frames[name] for name in self.inputs}
        if self.sql is not None:
            return _build_sql(self.sql, given)
        assert self.function is not None, f"view {self.name!r} has neither a function nor SQL"
        built = self.function(**given)
        from pyspark.sql import DataFrame

        if not isinstance(built, DataFrame):
            raise NotADataFrame(self.name, getattr(self.function, "__name__", "function"), self.place, built)
        return built


AlertFunction: TypeAlias = Callable[..., "str | bool | None"]
"""Of a row, or of a row and what it was before: a text, True for the usual one, or something falsy for no alert."""


@dataclass(frozen=True)
class AlertSpec:
    """An alert: of which changed rows of a view who is told, at most once per key in each period."""

    name: str
    view: str
    receivers: tuple[str, ...]
    """As the user wrote them: `mailto:`, `https:` and `topic:`."""
    every: timedelta
    when: str | None
    """SQL over the columns of the view and the struct `before`; None: every row that changes."""
    function: AlertFunction | None = field(compare=False)
    place: Place = field(compare=False)
    parameters: int = 1
    """How many values the function takes."""


class ViewOptions(TypedDict, total=False):
    """What may be said of any view."""

    key: Columns | None
    """The columns that tell one row from another; [] for a view of one row."""
    merge: Mapping[str, str] | None
    """How rows of one key merge, by column, for aggregates that Penstock does not know to merge."""
    within: Columns | Mapping[str, Columns] | None
    """Columns whose groups never meet, for all inputs or for each: what a new event touches is its group."""
    late: Late
    """Whether a late event corrects its row or is left out."""
    kept: Kept | None
    """How the view is kept, where you know better than its plan."""
    on_error: OnError
    """Whether a record on which the view's function fails becomes a dead letter, or stops the run."""
    horizon: str | timedelta | None
    """How far back a group may reach."""
    trigger: str | timedelta | None
    """How often it is brought up to date at most."""
    changelog: str | None
    """The topic to which its changes go."""


Spec: TypeAlias = TopicSpec | TableSpec | ViewSpec


def _build_sql(sql: str, frames: Mapping[str, DataFrame]) -> DataFrame:
    """Runs SQL over frames. The names are taken for as long as Spark needs to resolve them, and then free again."""
    spark = next(iter(frames.values())).sparkSession
    with _temporary_views:
        try:
            for name, frame in frames.items():
                frame.createOrReplaceTempView(f"`{name}`")
            return spark.sql(sql)
        finally:
            for name in frames:
                spark.catalog.dropTempView(name)
