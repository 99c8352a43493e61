"""What is decided about a view from its plan: how it is kept and why, or what is wrong with it. Plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from penstock.pipeline.definition import Kept
from penstock.pipeline.place import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType


@dataclass(frozen=True)
class Input:
    """Something that a view reads, as far as its plan is concerned."""

    name: str
    """By which the view's function knows it."""
    kind: Literal["topic", "view", "table"]
    schema: StructType
    event_time: str | None
    frame: DataFrame
    """A stand-in; for a table the static frame itself."""
    key: tuple[str, ...]
    lateness: timedelta | None = None
    """Of a topic: it decides what `_late` says, so answers can depend on it."""


@dataclass(frozen=True)
class Problem:
    """Something that keeps a view from running, for people to read."""

    place: Place
    view: str
    message: str
    hint: str


@dataclass(frozen=True)
class FoldColumn:
    """A column that is merged, and the rule by which two of its values become one."""

    name: str
    rule: str
    input_type: DataType | None
    """The type of the aggregate's argument where that is a plain column, else None."""


@dataclass(frozen=True)
class Fold:
    """The function over the new rows alone, merged into what is there."""

    kind: Literal["rows", "groups"]
    columns: tuple[FoldColumn, ...]
    """What is merged: the columns of `groups` that are not the key."""
    undo: bool
    """A view is among the inputs, so rows are taken back as well."""


@dataclass(frozen=True)
class Redo:
    """The windows or groups that new rows touched, computed again."""

    by: Literal["window", "group"]
    window: str | None
    """The output column that is the window, or its start: a struct or a timestamp. Only by window."""
    groups: Mapping[str, tuple[str, ...]]
    """By input, SQL expressions over its columns: rows of different groups never meet. Static tables have none."""
    output: tuple[str, ...] | None
    """The output columns that equal the group, in the same order; None where they are not all there."""
    times: Mapping[str, str] = field(default_factory=dict)
    """By window, the column of each topic that the window is made of: its event time, or `_arrived`."""
    window_us: tuple[int, int, int] | None = None
    """By window, its length, its slide and the offset of its start, in microseconds."""


@dataclass(frozen=True)
class Keeping:
    """How a view is kept, why, and what would make it cheaper."""

    how: Kept
    why: str
    advice: str | None
    fold: Fold | None = None
    redo: Redo | None = None


@dataclass(frozen=True)
class Analysis:
    """Everything that the plan of one view tells. `keeping` is None only where there are problems."""

    view: str
    frame: DataFrame
    """The user's function over the stand-ins. An empty frame where it could not be built."""
    schema: StructType
    """The columns people see: without the log's own."""
    keeping: Keeping | None
    problems: tuple[Problem, ...]
    parts: Mapping[str, str]
    """What the answer depends on: the plan, the code of UDFs, the definition. See `fingerprint.py`."""
    needed: Mapping[str, tuple[str, ...]]
    """By input, the columns that the plan really uses, in the order of the input's schema."""
