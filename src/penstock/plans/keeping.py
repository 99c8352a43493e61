"""How a view can be kept, found out from the plan of its function over empty inputs; and everything wrong with it.

fold    the new rows alone are enough              fold.py      (a whitelist)
redo    windows or groups that never meet          redo.py      (from meeting.py, or declared by within=)
whole   computed again from all of its inputs      over other views; over a topic only when asked for
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

from penstock.errors import NotADataFrame
from penstock.log.definition import OWN_COLUMNS
from penstock.plans.building import Seen, build, line_of, line_with
from penstock.plans.decision import Analysis, Fold, FoldColumn, Input, Keeping, Problem, Redo
from penstock.plans.fingerprint import canonical, view_parts
from penstock.plans.fold import changes, fold_of
from penstock.plans.meeting import meeting_of, seer_of_batches
from penstock.plans.needed import needed_columns
from penstock.plans.redo import Undivided, by_group, by_window, declared, within_of
from penstock.plans.replay import nondeterministic, not_replayable
from penstock.plans.ties import tied_limits
from penstock.plans.tree import marked, plan_of, text_of
from penstock.plans.whitelist import LEAVES, Refusal
from penstock.spark.private.analysis import plan_analysis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.pipeline.definition import ViewSpec
    from penstock.pipeline.place import Place

__all__ = ["Analysis", "Fold", "FoldColumn", "Input", "Keeping", "Problem", "Redo", "analyse"]

_SEEN_HINTS = {
    "action": "a view's function only describes rows, and is called before there are any; compute it in the plan",
    "pivot": "name the values: pivot(column, [...]); else the columns depend on the rows of the moment",
    "watermark": "it changes nothing in a batch; set lateness= on the topic, and late= on the view",
    "clock": "it is read once, when the view is built; use _arrived or the event time of each row",
}


def analyse(spec: ViewSpec, inputs: Mapping[str, Input], spark: SparkSession) -> Analysis:
    """Calls the view's function twice over the inputs' stand-ins and reads the plan. Runs no Spark job."""
    frames = {name: marked(name, each.frame) for name, each in inputs.items()}
    try:
        built, seen = build(spec, frames)
        again, _ = build(spec, frames)
    except NotADataFrame as error:
        return _unbuilt(spec, spark, Problem(spec.place, spec.name, error.message, error.hint))
    except Exception as error:  # The user's code may raise anything.
        return _unbuilt(spec, spark, _raised(spec, error))
    return _View(spec, inputs, built, seen, again).analysis()


class _View:
    """One view while it is looked at."""

    def __init__(
        self, spec: ViewSpec, inputs: Mapping[str, Input], frame: DataFrame, seen: list[Seen], again: DataFrame
    ) -> None:
        self._spec = spec
        self._inputs = inputs
        self._frame = frame
        self._again = again
        self._seen = seen
        self._plan = plan_of(frame)
        self._text = text_of(frame)
        self._schema = visible_schema(frame.schema)
        self._problems: list[Problem] = []

    def analysis(self) -> Analysis:
        self._problems += self._definition()
        keeping = self._keeping() if not self._problems else None
        parts = view_parts(self._spec, self._inputs, self._frame, self._plan, self._text)
        return Analysis(
            self._spec.name, self._frame, self._schema, keeping, tuple(self._problems), parts, self._needed(keeping)
        )

    def _problem(self, message: str, hint: str = "", place: Place | None = None) -> Problem:
        return Problem(place or self._spec.place, self._spec.name, message, hint)

    def _definition(self) -> Iterator[Problem]:
        """What is wrong before one asks how the view is kept."""
        for seen in self._seen:
            what = {
                "action": "starts a Spark job while it is built",
                "clock": "reads the clock or chance while it is built",
            }
            message = (
                f"the function calls {seen.what}, which {what[seen.kind]}"
                if seen.kind in what
                else (f"the function uses {seen.what}")
            )
            yield self._problem(message, _SEEN_HINTS[seen.kind], seen.place)
        unreplayable = list(not_replayable(self._plan)) or list(nondeterministic(self._frame))
        for words, hint in unreplayable:
            yield self._problem(f"{words} gives another answer when the log is replayed", hint, self._line_of(words))
        if not unreplayable and not self._seen and canonical(self._text) != canonical(text_of(self._again)):
            yield self._problem(
                "the function builds different plans when it is called twice",
                "it may depend on its arguments only: no clock, no random numbers, nothing it remembers",
            )
        yield from self._columns()
        yield from self._leaves()
        yield from self._any_of_several()

    def _any_of_several(self) -> Iterator[Problem]:
        """Where Spark may return any of several rows: batch and stream would differ."""
        for word, columns in tied_limits(self._plan, self._inputs, self._spec.key or ()):
            more = f", such as {', '.join(columns)}" if columns else ""
            yield self._problem(
                f"{word} returns any of several rows: its order has ties, or there is none",
                f"add unique columns to its ORDER BY{more}",
                self._line_of(word),
            )
        if self._may_collate():
            for words in plan_analysis.collated_keys(self._frame):
                yield self._problem(
                    f"it groups by {words}, whose collation treats different strings as equal: "
                    "the output shows any one of them",
                    "group by an expression that is the same for all of them, such as lower(...)",
                )

    def _may_collate(self) -> bool:
        """Whether any collation may be in the plan. Asking Spark is slow, so this is checked first."""
        has_rows = any(node.kind in LEAVES for node in self._plan.everywhere())
        types = [each.schema.simpleString() for each in self._inputs.values()]
        return has_rows or any("collat" in text.lower() for text in (self._text, *types))

    def _columns(self) -> Iterator[Problem]:
        from pyspark.errors import PySparkException
        from pyspark.sql.types import StructType

        from penstock.spark.private.rows import arrow_schema

        names = self._schema.fieldNames()
        known = f"the columns are {', '.join(names)}"
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield self._problem(f"two columns are named {name!r}", "give one of them another name with alias")
        for setting, wanted in (("key", self._spec.key or ()), ("merge", tuple(self._spec.merge))):
            for name in wanted:
                if name in OWN_COLUMNS:
                    yield self._problem(
                        f"{setting}= names {name!r}, which a view does not keep", "select it under another name"
                    )
                elif name not in names:
                    near = get_close_matches(name, names, n=1)
                    hint = f"did you mean {near[0]!r}? {known}" if near else known
                    yield self._problem(f"{setting}= names {name!r}, which is not a column of the view", hint)
        for field in self._schema.fields:
            try:
                arrow_schema(StructType([field]))
            except PySparkException:
                yield self._problem(
                    f"{field.name!r} has the type {field.dataType.simpleString()}, which cannot be kept",
                    "cast it to another type, such as an interval to a number of seconds, "
                    "or give the fields of a struct names of their own",
                )
        for name in self._spec.key or ():
            if name in names and "map<" in self._schema[name].dataType.simpleString():
                yield self._problem(
                    f"{name!r} has the type {self._schema[name].dataType.simpleString()} and cannot be a key"
                )

    def _leaves(self) -> Iterator[Problem]:
        for node in self._plan.everywhere():
            if not node.children and node.input is None and node.kind not in LEAVES:
                yield self._problem(
                    "it reads something that is no input of the view",
                    "declare it with app.table(name, path) and take it as a parameter",
                )

    def _line_of(self, words: str | None) -> Place | None:
        """The line of the view's function that has the word, if it is easily found."""
        return line_with(self._spec, words.rstrip("()")) if words else None

    def _keeping(self) -> Keeping | None:
        spec = self._spec
        if not changes(self._plan, self._inputs):
            return self._whole("it reads static tables only", None)
        fold = fold_of(self._plan, spec, self._inputs, self._schema, self._text)
        if isinstance(fold, Refusal):
            return self._not_folded(fold)
        if spec.kept in (None, "fold"):
            return Keeping("fold", _why_folded(fold, spec), None, fold=fold)
        return self._not_folded(Refusal(f'kept="{spec.kept}" is asked for', "without kept= it is folded"))

    def _not_folded(self, refusal: Refusal) -> Keeping | None:
        spec = self._spec
        if refusal.is_wrong:
            self._problems.append(self._problem(refusal.why, refusal.advice or ""))
        elif spec.merge:
            self._problems.append(
                self._problem(f"merge= is given, but the view cannot be folded: {refusal.why}", refusal.advice or "")
            )
        elif spec.kept == "fold":
            self._problems.append(self._problem(f'kept="fold" is asked for, but {refusal.why}', refusal.advice or ""))
        elif spec.key is None:
            add_key = "add key=[...], the columns that tell its rows apart"
            self._problems.append(
                self._problem(
                    f"it has no key, and only row-wise views need none: {refusal.why}",
                    f"{refusal.advice}; or {add_key}" if refusal.word and refusal.advice else add_key,
                    self._line_of(refusal.word),
                )
            )
        elif spec.kept == "whole":
            return self._whole('kept="whole" is asked for', refusal.advice)
        else:
            return self._divided(refusal)
        return None

    def _divided(self, refusal: Refusal) -> Keeping | None:
        """By windows or groups; else whole, where that is allowed."""
        spec, columns = self._spec, self._schema.fieldNames()
        meeting = meeting_of(self._plan, self._inputs)
        if meeting.not_in is not None:
            self._problems.append(
                self._problem(
                    f"{meeting.not_in}: one NULL in the subquery changes the answer for every row",
                    "write EXISTS or NOT EXISTS (SELECT 1 FROM ... WHERE ... = ...), which no NULL changes",
                )
            )
            return None
        if spec.within:
            groups, problems = within_of(spec, self._inputs)
            self._problems += [self._problem(message, hint) for message, hint in problems]
            if problems:
                return None
            redo = declared(self._plan, meeting, columns, groups)
            return Keeping("redo", f"within= says which rows belong together; {refusal.why}", refusal.advice, redo=redo)
        window = by_window(self._plan, meeting, spec, self._inputs)
        if window is not None:
            return Keeping(
                "redo", f"its key has the window {window.window!r}; {refusal.why}", refusal.advice, redo=window
            )
        group = by_group(self._plan, meeting, columns)
        if isinstance(group, Redo):
            words = "; ".join(f"{name}: {', '.join(each)}" for name, each in group.groups.items())
            return Keeping(
                "redo", f"rows meet only within a group ({words}); {refusal.why}", refusal.advice, redo=group
            )
        return self._undivided(refusal, group)

    def _undivided(self, refusal: Refusal, group: Undivided) -> Keeping | None:
        topics = [name for name, each in self._inputs.items() if each.kind == "topic"]
        why = refusal.why if group.why == refusal.why else f"{refusal.why}; {group.why}"
        if self._spec.kept == "redo":
            self._problems.append(
                self._problem(
                    f'kept="redo" is asked for, but {group.why}', "add within=, the columns whose groups never meet"
                )
            )
            return None
        if not topics:
            seer = seer_of_batches(self._plan, self._inputs)
            if seer is None:
                return self._whole(why, refusal.advice)
            self._problems.append(
                self._problem(
                    f"{seer} sees a batch of rows at once, and Spark cuts the batches of every step differently",
                    "write it as a plain udf, which sees one row, or with applyInPandas, which sees a whole group; "
                    'or kept="whole", if each row that it gives depends on one row only',
                )
            )
            return None
        hint = 'add within=, the columns whose groups never meet; or kept="whole" to compute all of it again each time'
        if refusal.advice:
            hint = f"{refusal.advice}; or {hint}"
        self._problems.append(
            self._problem(
                f"it would read all of {', '.join(topics)} at every step: {why}", hint, self._line_of(refusal.word)
            )
        )
        return None

    def _whole(self, why: str, advice: str | None) -> Keeping:
        return Keeping("whole", why, advice)

    def _needed(self, keeping: Keeping | None) -> dict[str, tuple[str, ...]]:
        extra: list[tuple[str, str]] = []
        if keeping is not None and keeping.redo is not None:
            extra += keeping.redo.times.items()
            for name, expressions in keeping.redo.groups.items():
                # A name that stands in the text may be a column: one too many does no harm.
                words = set(re.findall(r"\w+", " ".join(expressions).lower()))
                known = self._inputs[name].schema.fieldNames()
                quoted = " ".join(expressions)
                extra += [(name, column) for column in known if column.lower() in words or f"`{column}`" in quoted]
        return needed_columns(self._plan, self._inputs, extra)


def visible_schema(schema: StructType) -> StructType:
    """The columns without the log's own."""
    from pyspark.sql.types import StructType

    return StructType([each for each in schema.fields if each.name not in OWN_COLUMNS])


def _why_folded(fold: Fold, spec: ViewSpec) -> str:
    taken_back = "; rows of other views are taken back and put in again" if fold.undo else ""
    if fold.kind == "rows":
        return f"each row is made of one row{taken_back}"
    rules = ", ".join(dict.fromkeys(each.rule for each in fold.columns)) or "nothing else"
    by = ", ".join(spec.key or ()) or "nothing"
    return f"one aggregation by {by}, and {rules} can be merged{taken_back}"


def _raised(spec: ViewSpec, error: Exception) -> Problem:
    first = next((line for line in str(error).splitlines() if line.strip()), "")
    what = "the SQL is refused" if spec.sql is not None else f"the function raises {type(error).__name__}"
    return Problem(line_of(error, spec), spec.name, f"{what}: {first}", "the line is where it happened")


def _unbuilt(spec: ViewSpec, spark: SparkSession, problem: Problem) -> Analysis:
    from pyspark.sql.types import StructType

    empty = StructType([])
    return Analysis(spec.name, spark.createDataFrame([], empty), empty, None, (problem,), {}, {})
