"""The pipeline: what a user's file defines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from penstock.errors import (
    BindingError,
    CycleError,
    DefinitionError,
    NameTaken,
    PipelineError,
    did_you_mean,
)
from penstock.log.definition import Durability, TopicDefinition, ValueFormat
from penstock.pipeline.alerts import Alerting, define_alert
from penstock.pipeline.definition import (
    KEPT,
    LATE,
    ON_ERROR,
    AlertSpec,
    Columns,
    Kept,
    Late,
    OnError,
    Spec,
    TableSpec,
    TopicSpec,
    ViewOptions,
    ViewSpec,
)
from penstock.pipeline.graph import connected, in_order
from penstock.pipeline.options import PIPELINE_NAME, TOPIC_NAME, Asked, check_name, matches, parameters_of, topic_errors
from penstock.pipeline.place import place_of_caller, place_of_function
from penstock.pipeline.sql_names import relations_of
from penstock.pipeline.table_options import check_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Function = TypeVar("Function", bound=Callable[..., "DataFrame"])
VIEW_OPTIONS = (*ViewOptions.__annotations__, "name", "sql")


class Pipeline:
    """Topics, tables and views that belong together, by name.

    Building one starts no JVM and opens no log or database; what cannot be right is refused at once, with the line
    in your file. Names are bound later, so a view may stand before what it reads: `check_names` finds all that are
    unknown, `order` and `sets` raise the first.
    """

    def __init__(self, name: str, *, on_error: OnError = "dead_letter") -> None:
        """`on_error` is that of all views which do not say otherwise."""
        self.name = name
        self.place = place_of_caller()
        self.on_error: OnError = Asked("a pipeline", self.place).choice("on_error", on_error, ON_ERROR)
        self.topics: dict[str, TopicSpec] = {}
        self.tables: dict[str, TableSpec] = {}
        self.views: dict[str, ViewSpec] = {}
        self.alerts: dict[str, AlertSpec] = {}
        if not matches(PIPELINE_NAME, name):
            expected = "a-z, 0-9, '.', '_' and '-', beginning with a letter or digit, at most 63 characters"
            raise DefinitionError("a pipeline", self.place, "name", expected, repr(name))

    # --- defining ---

    def topic(
        self,
        name: str,
        ddl: str,
        *,
        key: Columns | None = None,
        event_time: str | None = None,
        lateness: str | timedelta = "10 minutes",
        partitions: int = 1,
        retention_age: str | timedelta | None = None,
        retention_bytes: int | None = None,
        compact: bool = False,
        durability: Durability = "disk",
        values: ValueFormat = "json",
        segment_bytes: int = TopicDefinition.segment_bytes,
    ) -> TopicSpec:
        """A topic of events; the options are those of `Log.create`. The first run makes it if it is not there."""
        asked = Asked(f"topic {name!r}", place_of_caller())
        asked.text("ddl", ddl)
        for setting, number in (("partitions", partitions), ("segment_bytes", segment_bytes)):
            asked.number(setting, number)
        options: dict[str, Any] = {
            "partitions": partitions,
            "retention_age": asked.duration("retention_age", retention_age),
            "retention_bytes": None if retention_bytes is None else asked.number("retention_bytes", retention_bytes),
            "compact": compact,
            "durability": durability,
            "values": values,
            "segment_bytes": segment_bytes,
        }
        lasting = asked.any_duration("lateness", lateness)
        columns = () if key is None else asked.columns("key", key)
        with topic_errors(asked):
            made = TopicDefinition(name, (ddl,), key=columns, event_time=event_time, lateness=lasting, **options)
        if made.is_dead_letters:
            asked.refuse("name", "a name that does not end in '.dead', which is for dead letters", name)
        spec = TopicSpec(name, ddl, columns, event_time, lasting, options, asked.place)
        self._claim(spec, asked)
        self.topics[name] = spec
        return spec

    def table(
        self,
        name: str,
        location: str | None = None,
        *,
        topic: str | TopicSpec | None = None,
        key: Columns | None = None,
        **options: Any,
    ) -> TableSpec:
        """Reference data for views to join: a static file, folder or database (`location`), or a topic of changes.

        A location is a path of csv, json, jsonl or parquet, counted from the file that defines the pipeline, or the
        url of a database. Options: `format`, `schema` (DDL), `header` and `delimiter` for files; `table` or `query`,
        and `schema`, for a database.
        """
        asked = Asked(f"table {name!r}", place_of_caller())
        check_name(asked, name)
        columns = () if key is None else asked.columns("key", key)
        of_topic = topic.name if isinstance(topic, TopicSpec) else topic
        where = check_table(asked, location, of_topic, columns, options)
        spec = TableSpec(name, where, of_topic, columns, dict(options), asked.place, self.place.folder)
        self._claim(spec, asked)
        self.tables[name] = spec
        return spec

    @overload
    def view(self, function: Function, /) -> Function: ...
    @overload
    def view(self, name: str, /, *, sql: str, **options: Unpack[ViewOptions]) -> ViewSpec: ...
    @overload
    def view(self, /, *, name: str | None = None, **options: Unpack[ViewOptions]) -> Callable[[Function], Function]: ...
    def view(self, what: Any = None, /, *, sql: str | None = None, name: str | None = None, **options: Any) -> Any:
        """A view: a decorated function of DataFrames, bound by its parameters' names, or one SQL statement.

        The decorator gives the function back as it was, so that it can be called and tested; `views` has the spec.

            @app.view(key=["window", "url"])
            def hits(access): ...

            app.view("busy", sql="SELECT url, hits FROM hits WHERE hits > 100", key="url")
        """
        if callable(what):
            self._view_of_function(what, name, options)
            return what
        if what is not None and not isinstance(what, str):
            Asked("a view", place_of_caller()).refuse("name", "a text, or the function itself", what)
        given = name if what is None else what
        if sql is not None:
            return self._view_of_sql(given, sql, options)

        def decorate(function: Function) -> Function:
            self._view_of_function(function, given, options)
            return function

        return decorate

    def _view_of_function(self, function: Callable[..., Any], name: str | None, options: Mapping[str, Any]) -> ViewSpec:
        place = place_of_function(function)
        name = getattr(function, "__name__", "") if name is None else name
        asked = Asked(f"view {name!r}", place, name)
        if name == "<lambda>":
            asked.refuse("name", "a function with a name, or name=", name)
        check_name(asked, name)
        inputs = parameters_of(function, name, place)
        return self._view(asked, name, inputs, function=function, sql=None, **options)

    def _view_of_sql(self, name: Any, sql: Any, options: Mapping[str, Any]) -> ViewSpec:
        asked = Asked(f"view {name!r}", place_of_caller(), name)
        check_name(asked, name)
        inputs = relations_of(asked.text("sql", sql))
        if not inputs:
            asked.refuse("sql", "a SELECT that reads from topics, tables or views", sql)
        return self._view(asked, name, inputs, function=None, sql=sql, **options)

    def _view(
        self,
        asked: Asked,
        name: str,
        inputs: tuple[str, ...],
        *,
        function: Callable[..., DataFrame] | None,
        sql: str | None,
        key: Columns | None = None,
        merge: Mapping[str, str] | None = None,
        within: Columns | Mapping[str, Columns] | None = None,
        late: Late = "correct",
        kept: Kept | None = None,
        horizon: str | timedelta | None = None,
        trigger: str | timedelta | None = None,
        changelog: str | None = None,
        on_error: OnError | None = None,
        **unknown: Any,
    ) -> ViewSpec:
        for option, value in unknown.items():
            asked.refuse(
                option,
                f"options of a view: {', '.join(VIEW_OPTIONS)}",
                value,
                did_you_mean(option, VIEW_OPTIONS).strip(),
            )
        columns = None if key is None else asked.columns("key", key)
        if changelog is not None and not matches(TOPIC_NAME, changelog):
            asked.refuse("changelog", "the name of a topic: a-z, 0-9, '.', '_' and '-'", changelog)
        spec = ViewSpec(
            name=name,
            inputs=inputs,
            key=columns,
            merge=asked.merge({} if merge is None else merge, columns),
            within=asked.within(within, inputs),
            late=asked.choice("late", late, LATE),
            kept=None if kept is None else asked.choice("kept", kept, KEPT),
            horizon=asked.duration("horizon", horizon),
            trigger=asked.duration("trigger", trigger),
            changelog=changelog,
            function=function,
            sql=sql,
            place=asked.place,
            on_error=self.on_error if on_error is None else asked.choice("on_error", on_error, ON_ERROR),
        )
        for other in self.views.values():
            if changelog is not None and other.changelog == changelog:
                asked.refuse(
                    "changelog", "a topic of its own", changelog, f"view {other.name!r} writes it, {other.place}"
                )
        self._claim(spec, asked)
        self.views[name] = spec
        return spec

    def alert(
        self,
        view: str,
        /,
        *,
        to: str | Sequence[str],
        every: str | timedelta = "10 minutes",
        when: str | None = None,
        name: str | None = None,
    ) -> Alerting:
        """Tells people of rows of a view when they change, at most once per key in each period of `every`.

        `to` is one or several of `mailto:`, `https:` and `topic:`. `when` is SQL over the columns of the view as they
        are after a step, and the struct `before`, which is NULL for a new row. As a decorator it lets a function of the
        row (and of `before`) decide and word it. Without `name` it is called like the function, or like the view.

            app.alert("errors", to="mailto:ops@example.com", when="errors > 20")
        """
        return define_alert(self.alerts, view, to=to, every=every, when=when, name=name)

    def _claim(self, spec: Spec, asked: Asked) -> None:
        """NameTaken if another thing is bound by the same name."""
        other = self.names().get(spec.bound)
        if other is not None:
            raise NameTaken(asked.thing, asked.place, spec.bound, describe(other), other.place)

    # --- binding ---

    def names(self) -> dict[str, Spec]:
        """Everything that a view can read, by the name that its function or SQL uses."""
        every: list[Spec] = [*self.topics.values(), *self.tables.values(), *self.views.values()]
        return {spec.bound: spec for spec in every}

    def inputs_of(self, view: ViewSpec) -> dict[str, Spec]:
        """What a view reads, by bound name. BindingError at the first name that nothing has."""
        for problem in self._unbound(view):
            raise problem
        names = self.names()
        return {name: names[name] for name in view.inputs}

    def check_names(self) -> list[PipelineError]:
        """Every name that nothing has, and the first circle: all problems that need no Spark to be found."""
        problems: list[PipelineError] = [
            BindingError(describe(table), table.place, table.topic, [*self.topics])
            for table in self.tables.values()
            if table.topic is not None and table.topic not in self.topics
        ]
        for view in self.views.values():
            problems.extend(self._unbound(view))
        problems += [
            BindingError(f"alert {alert.name!r}", alert.place, alert.view, [*self.views])
            for alert in self.alerts.values()
            if alert.view not in self.views
        ]
        try:
            in_order(self.views)
        except CycleError as error:
            problems.append(error)
        return problems

    def order(self) -> tuple[ViewSpec, ...]:
        """All views, each after those it reads. Raises the first problem that `check_names` finds."""
        for problem in self.check_names():
            raise problem
        return in_order(self.views)

    def sets(self) -> tuple[tuple[ViewSpec, ...], ...]:
        """Views that must move together, each set in order: connected through views, or through a topic of changes
        that they read as a table; a topic or static table that they share does not connect them."""
        tables = frozenset(table.bound for table in self.tables.values() if not table.is_static)
        return connected(self.order(), tables)

    def _unbound(self, view: ViewSpec) -> Iterator[BindingError]:
        known = [name for name in self.names() if name != view.name]
        for name in view.inputs:
            if name not in known and name != view.name:
                yield BindingError(describe(view), view.place, name, known, view=view.name)

    def __repr__(self) -> str:
        return f"Pipeline({self.name!r}, {len(self.topics)} topics, {len(self.tables)} tables, {len(self.views)} views)"


def describe(spec: Spec) -> str:
    """What a spec is, as messages say it: "view 'hits'"."""
    kind = {TopicSpec: "topic", TableSpec: "table", ViewSpec: "view"}[type(spec)]
    return f"{kind} {spec.name!r}"
