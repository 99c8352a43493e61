"""Records on which a view's function fails: found, set aside for that view, and written to its dead letters.

A record is set aside if and only if the view's plan fails over that record alone. So it depends on the record, the
code and the static tables, never on its neighbours or on where the log was cut: batch, stream, lambda and kappa leave
out the same records, and so does a run that is stopped and continued. Only views that compute each record by itself can
do so: row-wise ones over topics, and folds over topics.
"""

from __future__ import annotations

import builtins
import json
import linecache
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException, PythonException

from penstock.errors import TooManyFailed, UnknownTopic
from penstock.events.schema import parse_ddl
from penstock.events.tables import python_value
from penstock.log.partition import Offsets
from penstock.plans.building import is_library
from penstock.plans.collect import FrameFailed
from penstock.produce.dead_letters import SCHEMA as DEAD_SCHEMA
from penstock.upkeep.fold import FoldGroups, new_frames
from penstock.upkeep.fold_rows import FoldRows
from penstock.upkeep.inputs import TopicInput
from penstock.upkeep.slices import Place, Slice

if TYPE_CHECKING:
    from penstock.log.log import Log
    from penstock.spark.private.prepared import Asked
    from penstock.upkeep.compiled import CompiledView
    from penstock.upkeep.step import Step, Work

FAILED_MAX = 1_000
"""On more records of one step no function fails because of the records."""
PIECES = 8
"""A range with a failing record is cut into this many pieces: fewer rounds than halving, for few more jobs."""
AT_ONCE = 100
"""How many pieces are tried in one go."""

_NOT_DATA = frozenset(
    name
    for name, each in vars(builtins).items()
    if isinstance(each, type) and issubclass(each, OSError | MemoryError | ImportError)
)
"""Exceptions of Python that say nothing of the record: another try may be fine."""
_NOT_DATA_OF_OTHERS = re.compile(
    r"\w*(MemoryError|Timeout(Error|Expired|Exception)?|Connection\w*|Operational\w*|Interface\w*|Unavailable\w*"
    r"|URLError|HTTPError|SSLError|gaierror|herror)"
)
"""The same of libraries, by their usual names: only the name reaches the driver."""
_LINE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_CALLED = re.compile(r"was called from\s+(?P<file>\S.*):(?P<line>\d+)")


@dataclass(frozen=True)
class Failed:
    """A record on which a view's function fails."""

    topic: str
    partition: int
    offset: int
    error: PySparkException


def places_of(failed: Sequence[Failed]) -> dict[str, frozenset[Place]]:
    """The records by topic."""
    return {
        topic: frozenset((each.partition, each.offset) for each in failed if each.topic == topic)
        for topic in {each.topic for each in failed}
    }


def is_data_error(error: BaseException | None) -> bool:
    """Whether an error may be due to a record: one of the user's Python, or of Spark about a value (SQLSTATE 22)."""
    if isinstance(error, PythonException):
        kinds = [each.partition(":")[0].strip().rpartition(".")[2] for each in _raised(error)]
        return bool(kinds) and not any(each in _NOT_DATA or _NOT_DATA_OF_OTHERS.fullmatch(each) for each in kinds)
    if not isinstance(error, PySparkException):
        return False
    return str(error.getSqlState() or "").startswith("22") or error.getCondition() == "USER_RAISED_EXCEPTION"


def why_not(view: CompiledView) -> str | None:
    """Why a record on which the view's function fails stops the run; None if it is set aside."""
    if view.spec.on_error == "stop":
        return 'on_error="stop" is set'
    if not all(isinstance(each, TopicInput) for each in view.inputs.values()):
        return "it reads views"
    if not isinstance(view.keeper, FoldGroups | FoldRows):
        return f"it is kept by {view.keeping.how}: other records of the same group are computed with it"
    if not view.keeper.prepared.is_swapped:
        return "its plan holds rows that the function wrote down"
    return None


def failed_records(view: CompiledView, step: Step) -> Work[list[Failed]]:
    """The records of a step on which the function of a view fails, each alone. TooManyFailed beyond FAILED_MAX.

    Ranges of offsets in which something fails are cut into pieces until they are single records. A plan that fails over
    no records at all, and an error that has nothing to do with data, leave nothing to find.
    """
    nothing = {name: part.part(part.stop, part.stop) for name, part in step.slices.items()}
    [error] = yield from _tried(view, step, [nothing])
    if error is not None:
        return []
    found: list[Failed] = []
    ranges = [(name, part) for name, part in step.slices.items() if name in view.topics and part.rows]
    while ranges:
        pieces = [(name, piece) for name, part in ranges for piece in _pieces(part)]
        errors: list[BaseException | None] = []
        for first in range(0, len(pieces), AT_ONCE):
            some = pieces[first : first + AT_ONCE]
            errors += yield from _tried(view, step, [{**nothing, name: piece} for name, piece in some])
            if sum(each is not None for each in errors) > FAILED_MAX - len(found):
                reason = next(reason_of(each) for each in errors if isinstance(each, PySparkException))
                raise TooManyFailed(view.name, view.spec.place, FAILED_MAX, reason)
        failing = [(*piece, error) for piece, error in zip(pieces, errors, strict=True) if error is not None]
        if any(not is_data_error(error) for *_, error in failing):
            return []
        ranges = [(name, piece) for name, piece, _ in failing if piece.rows > 1]
        for name, piece, error in failing:
            if piece.rows == 1 and isinstance(error, PySparkException):
                [place] = [(number, end - 1) for number, end in piece.stop.items() if end > piece.start[number]]
                found.append(Failed(name, *place, error))
    return sorted(found, key=lambda each: (each.topic, each.partition, each.offset))


def _tried(view: CompiledView, step: Step, tries: Sequence[Mapping[str, Slice]]) -> Work[list[BaseException | None]]:
    """How the view's plan fails over each of these slices; None where it does not."""
    tables = yield [_asked(view, replace(step, slices=slices, aside={})) for slices in tries]
    errors: list[BaseException | None] = []
    for place in range(len(tries)):
        try:
            _ = tables[place]
            errors.append(None)
        except FrameFailed as failed:
            errors.append(failed.__cause__)
    return errors


def _asked(view: CompiledView, step: Step) -> Asked:
    assert isinstance(view.keeper, FoldGroups | FoldRows), view.keeper
    return view.keeper.prepared.ask(new_frames(view.inputs, step, view.name))


def _pieces(part: Slice) -> Iterator[Slice]:
    """The slice in several pieces of about the same size, down to one record each."""
    bounds = [part.rows * number // PIECES for number in range(PIECES + 1)]
    for low, high in pairwise(sorted(set(bounds))):
        yield part.part(_advanced(part, low), _advanced(part, high))


def _advanced(part: Slice, count: int) -> Offsets:
    """Where a slice ends that has only the first `count` records, partition after partition."""
    found = {}
    for number, stop in part.stop.items():
        start = part.start.get(number, 0)
        taken = min(count, stop - start)
        found[number] = start + taken
        count -= taken
    return found


# --- their dead letters ---


def letters(view: CompiledView, step: Step, failed: Sequence[Failed]) -> pa.Table:
    """The dead letters: the record with its place, the error, and the line of the user's file."""
    rows = [_record(step.slices[each.topic], each) for each in failed]
    columns: list[list[object]] = [
        [each.topic for each in failed],
        [f"{reason_of(each.error)}\n{line_of(view, each.error)}" for each in failed],
        [None] * len(failed),
        [json.dumps(row, default=str, ensure_ascii=False).encode() for row in rows],
        [f"view {view.name}"] * len(failed),
    ]
    schema = parse_ddl(DEAD_SCHEMA)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def _record(part: Slice, failed: Failed) -> dict[str, object]:
    place = {failed.partition: failed.offset}
    table = part.part(place, {failed.partition: failed.offset + 1}).table
    return {name: python_value(table.column(name)[0]) for name in table.schema.names if name != "_late"}


def reason_of(error: PySparkException) -> str:
    """What went wrong, in one line."""
    raised = _raised(error) if isinstance(error, PythonException) else []
    if raised:
        return raised[-1]
    return str(error).strip().splitlines()[0].partition(" SQLSTATE:")[0]


def line_of(view: CompiledView, error: PySparkException) -> str:
    """The line of the user's file where it went wrong; the view's own where that is not known."""
    lines = [*_LINE.finditer(str(error)), *_CALLED.finditer(str(error))]
    mine = [(each["file"], int(each["line"])) for each in lines if not is_library(each["file"])]
    if not mine:
        return view.spec.place.shown
    file, line = mine[-1]
    return f"{file}:{line}   {linecache.getline(file, line).strip()}".rstrip()


def _raised(error: PythonException) -> list[str]:
    """What was raised in Python, each by its kind and the first line of its text; the last one ended the function."""
    found, is_in_stack = [], False
    for line in str(error).splitlines():
        if _LINE.match(line.strip()):
            is_in_stack = True
        elif is_in_stack and line.strip() and not line.startswith(" "):
            is_in_stack = False
            found.append(line.strip())
    return found


def buried(log: Log, topic: str) -> dict[str, frozenset[Place]]:
    """By topic, the records that a topic of dead letters has from a view."""
    try:
        rows = log.topic(topic).slice(columns=["topic", "raw"])
    except UnknownTopic:
        return {}
    found: dict[str, set[Place]] = {}
    for name, raw in zip(rows.column("topic").to_pylist(), rows.column("raw").to_pylist(), strict=True):
        with suppress(ValueError, KeyError, TypeError):  # Letters of rows that a database cannot hold name no record.
            record = json.loads(raw)
            found.setdefault(name, set()).add((record["_partition"], record["_offset"]))
    return {name: frozenset(places) for name, places in found.items()}
