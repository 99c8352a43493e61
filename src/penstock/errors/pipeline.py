"""What can be wrong with a pipeline: its definition, the file it stands in, the tables it reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.errors.base import PenstockError, did_you_mean
from penstock.redacted import redacted

if TYPE_CHECKING:
    from penstock.pipeline.place import Place

NAMES_SHOWN_MAX = 20


class PipelineError(PenstockError):
    """Something is wrong with a pipeline. `place` is the user's file and line, where there is one.

    `view` names the view it is about, if any; `message` is the problem without its place, and `hint` what to do next.
    """

    def __init__(
        self, title: str, place: Place | None, message: str, hint: str = "", *, view: str | None = None
    ) -> None:
        self.title = title
        self.place = place
        self.message = redacted(message)
        self.hint = redacted(hint)
        self.view = view
        lines = [f"pipeline: {title}", place.shown if place is not None else "", message, hint]
        super().__init__("\n  ".join(line.replace("\n", "\n  ") for line in lines if line))


class DefinitionError(PipelineError):
    """A name, a column or an option that does not fit."""

    def __init__(
        self,
        thing: str,
        place: Place,
        setting: str,
        expected: str,
        found: str,
        hint: str = "",
        *,
        view: str | None = None,
    ) -> None:
        self.thing = thing
        self.setting = setting
        self.expected = expected
        self.found = found
        super().__init__(f"{thing} cannot have {setting} = {found}", place, f"expected: {expected}", hint, view=view)


class NameTaken(PipelineError):
    """Two things would be bound by the same name."""

    def __init__(self, thing: str, place: Place, name: str, other: str, other_place: Place) -> None:
        self.thing = thing
        self.name = name
        self.other = other
        self.other_place = other_place
        super().__init__(
            f"{thing} cannot be defined: the name {name!r} is taken",
            place,
            f"{other} is bound as {name!r} already, at {other_place}",
            "give one of them another name",
        )


class ViewFunctionError(PipelineError):
    """A view's function has parameters that cannot be bound to anything."""

    def __init__(self, view: str, place: Place, found: str, hint: str) -> None:
        self.found = found
        super().__init__(
            f"view {view!r} cannot be bound",
            place,
            f"expected: one plain parameter for each topic, table or view that it reads; found {found}",
            hint,
            view=view,
        )


class BindingError(PipelineError):
    """A view or table reads something that nothing is named after."""

    def __init__(self, thing: str, place: Place, name: str, known: Sequence[str], *, view: str | None = None) -> None:
        self.thing = thing
        self.name = name
        self.known = tuple(known)
        shown = ", ".join(self.known[:NAMES_SHOWN_MAX]) or "none yet"
        more = f" and {len(known) - NAMES_SHOWN_MAX} more" if len(known) > NAMES_SHOWN_MAX else ""
        super().__init__(
            f"{thing} cannot be bound",
            place,
            f"nothing is named {name!r}; known names: {shown}{more}",
            did_you_mean(name, self.known).strip(),
            view=view,
        )


class CycleError(PipelineError):
    """Views that read one another in a circle. `views` and `places` name each of them once, each reading the next."""

    def __init__(self, views: Sequence[str], places: Sequence[Place]) -> None:
        self.views = tuple(views)
        self.places = tuple(places)
        circle = [*self.views, self.views[0]]
        width = max(len(str(place)) for place in self.places)
        steps = [
            f"{place!s:<{width}}   {name!r} reads {after!r}"
            for place, name, after in zip(self.places, circle, circle[1:], strict=False)
        ]
        title = (
            f"view {views[0]!r} reads itself" if len(views) == 1 else f"{len(views)} views read one another in a circle"
        )
        super().__init__(
            title, None, "\n".join(steps), "let one of them read a topic or another view instead", view=self.views[0]
        )
        self.place = self.places[0]


class NotADataFrame(PipelineError):
    """A view's function returned something else than a DataFrame."""

    def __init__(self, view: str, function: str, place: Place, returned: object) -> None:
        self.function = function
        self.returned = returned
        if returned is None:
            found, hint = "None", "did you forget `return`?"
        else:
            found = f"a {type(returned).__name__}"
            hint = "return the DataFrame itself, without collecting, writing or showing it"
        super().__init__(
            f"view {view!r} cannot be built",
            place,
            f"expected: {function}() returns a DataFrame; found {found}",
            hint,
            view=view,
        )


class PipelineLoadError(PipelineError):
    """The file or module that should hold a pipeline does not. `target` is what was asked for."""

    def __init__(self, target: str, title: str, message: str, hint: str, place: Place | None = None) -> None:
        self.target = target
        super().__init__(title, place, message, hint)


class PipelineFileMissing(PipelineLoadError):
    """There is no such file or module."""

    def __init__(self, target: str, found: str, hint: str = "") -> None:
        super().__init__(
            target,
            f"cannot open {target!r}",
            f"expected: app.py, app.py:name or package.module:name; found {found}",
            hint,
        )


class PipelineImportFailed(PipelineLoadError):
    """The user's file raised an error while it was imported. `cause` is that error, `place` the line of theirs."""

    def __init__(self, target: str, place: Place | None, cause: BaseException) -> None:
        self.cause = cause
        if isinstance(cause, SystemExit):
            hint = "put what should run only as a program under: if __name__ == '__main__':"
        else:
            hint = "nothing was run; repair the line above"
        text = str(cause) if not isinstance(cause, SyntaxError) else cause.msg
        found = f"{type(cause).__name__}: {text}" if text else type(cause).__name__
        super().__init__(target, f"{target} cannot be imported", found, hint, place)


class NoPipeline(PipelineLoadError):
    """The file was imported, and holds no pipeline of that name, or none at all."""

    def __init__(self, target: str, name: str | None, found: str, known: Sequence[str]) -> None:
        self.name = name
        self.known = tuple(known)
        if name is None:
            hint = 'make one at the top level of the file: app = Pipeline("name")'
        else:
            hint = f"known names: {', '.join(known) or 'none'}{did_you_mean(name, known)}"
        what = "it holds no Pipeline" if name is None else f"{name!r} in it is no Pipeline"
        super().__init__(target, f"cannot open {target!r}: {what}", f"found {found}", hint)


class SeveralPipelines(PipelineLoadError):
    """The file holds several pipelines, and nobody said which."""

    def __init__(self, target: str, names: Sequence[str]) -> None:
        self.names = tuple(names)
        super().__init__(
            target,
            f"cannot open {target!r}: it holds {len(names)} pipelines",
            f"found: {', '.join(names)}",
            f"say which: {target}:{names[0]}",
        )


class TableChanged(PipelineError):
    """The files of a large static table were written to during a run. A step may have seen both; it was not stored."""

    def __init__(self, table: str, place: Place, location: str) -> None:
        self.table = table
        self.location = location
        super().__init__(
            f"table {table!r} has changed during the run",
            place,
            f"{location} was written to; nothing of this step was stored, and the views are as they were before it",
            "start the run again: it says what a changed table means for the views. A copy under a new name, "
            "or a table of at most 16 MiB, is not read while it changes",
        )


class TableUnreadable(PipelineError):
    """A static table is not there, or cannot be read as what it should be."""

    def __init__(self, table: str, place: Place, location: str, found: str, hint: str = "") -> None:
        self.table = table
        self.location = location
        self.found = found
        super().__init__(f"table {table!r} cannot be read", place, f"{location}: {found}", hint)
