"""What keeps a pipeline from running, or stops it: problems of its views, changed code, lost records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.errors.base import PenstockError, did_you_mean

if TYPE_CHECKING:
    from penstock.pipeline.place import Place
    from penstock.plans.decision import Problem


class RunError(PenstockError):
    """Something keeps a pipeline from running."""


class PipelineProblems(RunError):
    """Views that cannot be kept as they are written. All of them are named, each with its line."""

    def __init__(self, pipeline: str, problems: Sequence[Problem]) -> None:
        self.pipeline = pipeline
        self.problems = tuple(problems)
        told = [f"  {each.place.shown}\n    view {each.view!r}: {each.message}\n    {each.hint}" for each in problems]
        count = f"{len(told)} problem{'s' if len(told) != 1 else ''}"
        super().__init__(f"pipeline: {pipeline!r} has {count}\n" + "\n".join(told))


class ViewsChanged(RunError):
    """Views are there that other code made, or other settings, tables or libraries.

    Going on with them would mix two answers, so nothing was done. `changed` says by view what is different now.
    """

    def __init__(self, pipeline: str, changed: Mapping[str, str], places: Mapping[str, Place]) -> None:
        self.pipeline = pipeline
        self.changed = dict(changed)
        told = [f"  {places[name].shown}\n    view {name!r}, changed: {what}" for name, what in changed.items()]
        names = " ".join(changed)
        super().__init__(
            f"pipeline: {pipeline!r} is not what its views were made with\n" + "\n".join(told) + "\n"
            "  the views are as they were, and readers go on reading them\n"
            "  to replay the log into new ones beside them, compare, and switch over: penstock run FILE --mode kappa\n"
            f"  to compute just these anew as a batch: penstock view rebuild {names} --app FILE"
        )


class LogReplaced(RunError):
    """The log is not the one that stored views were computed from. Going on would mix two logs, so nothing was done."""

    def __init__(self, pipeline: str, views: Sequence[str], topic: str, why: str) -> None:
        self.pipeline = pipeline
        self.views = list(views)
        self.topic = topic
        self.why = why
        super().__init__(
            f"pipeline: {', '.join(views)} cannot continue: topic {topic!r} has lost or replaced records\n"
            f"  {why}\n"
            "  the views are as they were, and readers go on reading them\n"
            f"  to compute them from the log as it is now: penstock view rebuild {' '.join(views)} --app FILE"
        )


class TopicForgets(RunError):
    """A topic removes records that a view goes on counting, so a batch would give other rows than a stream."""

    def __init__(self, view: str, place: Place, topic: str, why: str, hint: str) -> None:
        self.view = view
        self.topic = topic
        super().__init__(
            f"pipeline: view {view!r} cannot be kept over topic {topic!r}\n  {place.shown}\n  {why}\n  {hint}"
        )


class ReplayRefused(RunError):
    """Retention has removed records that computing a view anew would need."""

    def __init__(self, views: Sequence[str], lost: Mapping[str, int]) -> None:
        self.views = list(views)
        self.lost = dict(lost)
        gone = ", ".join(f"{count:,} of topic {topic!r}" for topic, count in lost.items())
        super().__init__(
            f"pipeline: computing {', '.join(views)} anew would lose what only the views still know\n"
            f"  retention has removed records: {gone}\n"
            "  the views are as they were\n"
            "  to compute them from what is left all the same: --allow-loss"
        )


class TopicDiffers(RunError):
    """A topic is there that cannot become what the pipeline defines."""

    def __init__(self, topic: str, place: Place, setting: str, found: str, wanted: str, why: str) -> None:
        self.topic = topic
        self.setting = setting
        self.found = found
        self.wanted = wanted
        super().__init__(
            f"pipeline: topic {topic!r} is there with another {setting}\n  {place.shown}\n"
            f"  in the pipeline: {wanted}\n  in the log:      {found}\n  {why}\n"
            f"  change the definition, or look at the topic: penstock topic show {topic}"
        )


class TwoRowsForOneKey(RunError):
    """A view's function gave two rows with the same key. Nothing of the step was stored."""

    def __init__(
        self, view: str, place: Place, key: Sequence[str], first: Mapping[str, Any], second: Mapping[str, Any]
    ) -> None:
        self.view = view
        self.key = tuple(key)
        self.first = dict(first)
        self.second = dict(second)
        named = f"key {', '.join(key)}" if key else "a view of one row (key=[])"
        super().__init__(
            f"view {view!r}: two rows for one key\n  {place.shown}\n  {named}\n"
            f"  one:     {self.first}\n  another: {self.second}\n"
            "  nothing of this step was stored; add the columns to the key that tell the rows apart"
        )


class StepFailed(RunError):
    """Spark could not compute a view. Nothing of the step was stored."""

    def __init__(self, view: str, place: Place, reason: str, hint: str = "") -> None:
        self.view = view
        self.reason = reason
        super().__init__(
            f"view {view!r}: Spark could not compute a step\n  {place.shown}\n  {reason}\n"
            "  nothing of this step was stored; the views are as of the step before" + (hint and f"\n  {hint}")
        )


class TooManyFailed(StepFailed):
    """A view's function fails on more records of one step than are set aside. Nothing of the step was stored."""

    def __init__(self, view: str, place: Place, most: int, reason: str) -> None:
        super().__init__(view, place, reason)
        self.most = most
        text = (
            f"view {view!r}: its function fails on more than {most:,} records of one step\n  {place.shown}\n"
            f"  one of them: {reason}\n"
            "  more are not set aside: the function itself may be wrong\n"
            "  nothing of this step was stored; the views are as of the step before\n"
            "  correct the function, filter such records out, or read values that may be malformed with try_cast and "
            "the like"
        )
        self.args = (text,)


class ValueUnfit(StepFailed):
    """A folded view came to a value that its database cannot hold, and without which it cannot go on adding up."""

    def __init__(self, view: str, place: Place, column: str, reason: str, row: str) -> None:
        super().__init__(view, place, reason)
        self.column = column
        text = (
            f"view {view!r}: the database cannot hold its column {column!r}\n  {place.shown}\n  {reason}: {row}\n"
            "  the view is folded: it adds to this value with each step, so it cannot be left out\n"
            "  nothing of this step was stored; the views are as of the step before\n"
            "  filter such events out before they are aggregated, or cast the column to text, and rebuild the view"
        )
        self.args = (text,)


class StepOverflow(StepFailed):
    """A number that a view computes does not fit its type: found by Spark, or where steps are added up.

    The text is the same for both, for only the cut between two steps decides which of them finds it.
    """

    def __init__(self, view: str, place: Place) -> None:
        super().__init__(view, place, "a number is too large for its type")
        text = (
            f"view {view!r}: a number is too large for its type\n  {place.shown}\n"
            "  a sum, or something else that it computes, has outgrown its column; it is neither wrapped nor rounded\n"
            "  nothing of this step was stored; the views are as of the step before\n"
            "  give it room, such as sum(CAST(x AS DECIMAL(38, 0))), and rebuild the view"
        )
        self.args = (text,)


class KeptRowUnfit(RunError):
    """A view that is redone cannot go on: its database cannot hold a record that later redos will need."""

    def __init__(self, table: str, column: str, reason: str) -> None:
        self.table = table
        self.column = column
        self.reason = reason
        super().__init__(
            f"table {table!r}: the database cannot hold a record that is kept for later redos\n"
            f"  column {column!r}: {reason}\n"
            "  left out, it would be missing whenever its window or group is computed again\n"
            "  nothing of this step was stored; the views are as of the step before\n"
            "  filter such records out in a view of its own below this one, or cast the column to text, and rebuild"
        )


class KeptRowsLost(RunError):
    """A view that is redone cannot go on: retention removed records it has not kept yet."""

    def __init__(self, views: Sequence[str], topic: str) -> None:
        self.views = list(views)
        self.topic = topic
        super().__init__(
            f"view {', '.join(views)}: cannot go on as a stream\n"
            f"  it was computed as a batch; since then retention removed records of topic {topic!r} that it needs\n"
            "  to compute it anew from what is left: penstock view rebuild "
            f"{' '.join(views)} --app FILE --allow-loss"
        )


class UntilError(RunError):
    """A place to stop at that cannot be understood, or that no topic has."""

    def __init__(self, value: str, known: Sequence[str] = ()) -> None:
        self.value = value
        topics = f"; topics of this pipeline: {', '.join(known)}" if known else ""
        super().__init__(
            f"run: cannot stop at {value!r}\n"
            "  expected: a moment of arrival, such as 2026-01-01T12:00:00Z, or offsets, such as access:0=100,orders:1=8"
            f"{topics}"
        )


class UnknownMode(RunError):
    """There is no such mode."""

    def __init__(self, mode: str, known: Sequence[str]) -> None:
        self.mode = mode
        super().__init__(f"run: no mode {mode!r}\n  expected: {' or '.join(known)}{did_you_mean(mode, known)}")


class GenerationError(RunError):
    """A generation of a view that is meant is not there."""


class UnknownGeneration(GenerationError):
    """A view has no such generation."""

    def __init__(self, view: str, which: str, known: Sequence[tuple[int, str]]) -> None:
        self.view = view
        self.which = which
        there = ", ".join(f"{number} ({state})" for number, state in known)
        super().__init__(
            f"view {view!r}: there is no generation {which!r}\n"
            f"  expected: live, old, new, or a number; there are: {there or 'none'}\n"
            f"  to look at them: penstock view generations {view}"
        )


class NothingToRollBack(GenerationError):
    """No older generation of a view is left."""

    def __init__(self, view: str) -> None:
        self.view = view
        super().__init__(
            f"view {view!r}: there is no older generation to go back to\n"
            "  one is kept when views are replayed or rebuilt, for as long as views.keep_old says\n"
            "  to compute the view with other code: penstock run FILE --mode kappa"
        )


class NothingReady(GenerationError):
    """No generation waits to be switched in, or those of several pipelines do."""

    def __init__(self, pipeline: str | None, ready: Sequence[str]) -> None:
        self.pipeline = pipeline
        self.ready = list(ready)
        if ready:
            wrong = "which pipeline is meant?" if pipeline is None else f"pipeline {pipeline!r} has nothing ready"
            told = f"  ready are: {', '.join(ready)}\n  to switch one of them in: penstock switch {ready[0]}"
        else:
            wrong = "nothing is ready to be switched in"
            told = "  views are held ready by: penstock run FILE --mode kappa --hold"
        super().__init__(f"switch: {wrong}\n{told}")


class SwitchNotTaken(GenerationError):
    """A run holds new views ready and does not switch them in."""

    def __init__(self, pipeline: str, seconds: float) -> None:
        self.pipeline = pipeline
        super().__init__(
            f"switch: the run of pipeline {pipeline!r} has not switched in {seconds:.0f} seconds\n"
            "  nothing was changed; it may be in a long step: look at it, and try again"
        )
