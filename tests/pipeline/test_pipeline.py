from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import Pipeline
from penstock.errors import BindingError, DefinitionError, NameTaken, ViewFunctionError

DDL = "time timestamp, ip string, status int, tags array<string>"


@pytest.fixture
def app() -> Pipeline:
    app = Pipeline("app")
    app.topic("web.access", DDL, key="ip", event_time="time")
    return app


# --- what comes of it ---


def test_a_view_says_what_an_error_does_else_its_pipeline() -> None:
    app = Pipeline("app", on_error="stop")
    app.topic("access", DDL)
    app.view("stops", sql="SELECT ip FROM access")
    app.view("goes_on", sql="SELECT ip FROM access", on_error="dead_letter")
    assert [each.on_error for each in app.views.values()] == ["stop", "dead_letter"]
    assert Pipeline("other").on_error == "dead_letter"
    with pytest.raises(DefinitionError, match='"dead_letter" or "stop"'):
        app.view("wrong", sql="SELECT ip FROM access", on_error="skip")  # type: ignore[call-overload]
    with pytest.raises(DefinitionError, match="on_error"):
        Pipeline("app", on_error="skip")  # type: ignore[arg-type]


def test_a_topic_is_kept_as_given() -> None:
    spec = Pipeline("app").topic(
        "access", DDL, key=["ip", "status"], event_time="time", lateness="30 seconds", partitions=4, retention_age="7d"
    )
    assert (spec.key, spec.event_time, spec.lateness) == (("ip", "status"), "time", timedelta(seconds=30))
    assert spec.options["partitions"] == 4
    assert spec.options["retention_age"] == timedelta(days=7)


def test_the_decorator_gives_the_function_back(app: Pipeline) -> None:
    @app.view
    def plain(web_access: Any) -> Any:
        return web_access

    @app.view(key=[], merge={"n": "sum"}, within={"web.access": "ip"}, late="drop", kept="redo", horizon="1 day")
    def full(web_access: Any) -> Any:
        return web_access

    @app.view(name="renamed", within="ip", trigger="2s", changelog="renamed.changes")
    def other(*, plain: Any, web_access: Any) -> Any:
        return plain

    assert plain(1) == full(1) == other(plain=1, web_access=2) == 1
    assert [*app.views] == ["plain", "full", "renamed"]
    spec = app.views["full"]
    assert (spec.inputs, spec.key, spec.merge, spec.within) == (
        ("web_access",),
        (),
        {"n": "sum"},
        {"web_access": ("ip",)},
    )
    assert (spec.late, spec.kept, spec.horizon) == ("drop", "redo", timedelta(days=1))
    assert app.views["renamed"].inputs == ("plain", "web_access")
    assert app.views["renamed"].within == {"*": ("ip",)}
    assert (app.views["plain"].key, app.views["plain"].late, app.views["plain"].kept) == (None, "correct", None)
    assert app.inputs_of(app.views["renamed"])["web_access"] is app.topics["web.access"]


def test_a_view_may_stand_before_what_it_reads() -> None:
    app = Pipeline("app")
    spec = app.view("late_comers", sql="SELECT * FROM Access JOIN `people` USING (ip)", key="ip")
    assert len(app.check_names()) == 2
    app.topic("access", DDL)
    app.table("people", "people.csv")
    assert app.order() == (spec,)
    assert spec.inputs == ("access", "people")


def test_equal_definitions_are_equal_wherever_they_stand() -> None:
    def made(function: Callable[..., Any]) -> Pipeline:
        app = Pipeline("app")
        app.topic("access", DDL, key="ip")
        app.table("people", "people.csv")
        app.view(key="ip", name="v")(function)
        return app

    one, two = made(lambda access: access), made(lambda access: None)
    assert (one.topics, one.tables, one.views) == (two.topics, two.tables, two.views)
    assert len({one.views["v"], two.views["v"]}) == 1
    assert one.topics["access"] != Pipeline("app").topic("access", DDL)


def test_building_imports_no_spark_and_opens_no_file_but_the_users(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        """
import sys
import penstock.pipeline.pipeline, traceback, linecache, tokenize, re
opened = []
sys.addaudithook(lambda event, given: opened.append(str(given[0])) if event in ("open", "os.mkdir") else None)
from penstock import Pipeline
app = Pipeline("app")
app.topic("access", "time timestamp, ip string", key="ip", event_time="time")
app.table("people", "people.csv")
app.table("accounts", "postgresql://nobody@nowhere/x")
@app.view(key="ip")
def hits(access, people):
    return access
app.view("busy", sql="SELECT * FROM hits JOIN accounts")
app.sets()
assert not {"pyspark", "py4j", "pandas", "sqlalchemy"} & set(sys.modules), "heavy"
assert {name for name in opened if not name.endswith((".py", ".pyc"))} == set(), opened
assert {name for name in opened if "people" in name or "data" in name} == set(), opened
print("fine")
"""
    )
    answer = subprocess.run([sys.executable, "app.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert answer.stdout == "fine\n", answer.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"app.py"}


# --- what is refused ---


def fields(error: DefinitionError) -> tuple[str, str, str]:
    return error.thing, error.setting, error.found


@pytest.mark.parametrize(
    ("ddl", "options", "setting", "text"),
    [
        ("time timstamp", {}, "ddl", "did you mean 'timestamp'?"),
        ("", {}, "ddl", "expected: a text"),
        (DDL, {"key": "statsu"}, "key", "did you mean 'status'?"),
        (DDL, {"key": ["ip", "ip"]}, "key", "each column once"),
        (DDL, {"key": 5}, "key", "a column's name"),
        (DDL, {"key": "tags"}, "key", "plain values"),
        (DDL, {"event_time": "tme"}, "event_time", "did you mean 'time'?"),
        (DDL, {"event_time": "ip"}, "event_time", "a timestamp column"),
        (DDL, {"lateness": "10"}, "lateness", "has no unit"),
        (DDL, {"retention_age": "0"}, "retention_age", "more than zero"),
        (DDL, {"partitions": 0}, "partitions", "1 to 1024"),
        (DDL, {"partitions": "4"}, "partitions", "a whole number"),
        (DDL, {"retention_bytes": 1.5}, "retention_bytes", "a whole number"),
        (DDL, {"compact": True}, "compact", "a key to compact by"),
        (DDL, {"durability": "tape"}, "durability", '"disk" or "os"'),
        (DDL, {"values": "xml"}, "values", '"json" or "avro"'),
    ],
)
def test_a_topic_that_cannot_be_is_refused_at_once(ddl: str, options: dict[str, Any], setting: str, text: str) -> None:
    app = Pipeline("app")
    with pytest.raises(DefinitionError) as caught:
        app.topic("access", ddl, **options)
    assert caught.value.thing == "topic 'access'"
    assert caught.value.setting == setting
    assert text in str(caught.value)
    assert "test_pipeline.py:" in str(caught.value)
    assert app.topics == {}


def test_the_place_in_a_ddl_is_pointed_at() -> None:
    with pytest.raises(DefinitionError) as caught:
        Pipeline("app").topic("access", "time timstamp")
    lines = str(caught.value).splitlines()
    pointer = next(line for line in lines if line.strip() == "^")
    assert lines[lines.index(pointer) - 1][pointer.index("^") :] == "timstamp"


@pytest.mark.parametrize("name", ["", "Access", "_access", "a b", "a" * 129, "access.dead"])
def test_names_of_topics_are_checked(name: str) -> None:
    with pytest.raises(DefinitionError, match="name"):
        Pipeline("app").topic(name, DDL)


@pytest.mark.parametrize("name", ["", "Web Logs", "a/b", None, "x" * 64])
def test_names_of_pipelines_are_checked(name: Any) -> None:
    with pytest.raises(DefinitionError, match="a pipeline cannot have name"):
        Pipeline(name)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Hits", "'hits'"),
        ("a-b", "'a_b'"),
        ("2nd", ""),
        ("a" * 64, ""),
        ("", ""),
        ("_penstock_x", "Penstock's own"),
        ("a__b", "'a_b'"),
    ],
)
def test_names_of_views_and_tables_are_checked(app: Pipeline, name: str, hint: str) -> None:
    with pytest.raises(DefinitionError) as view:
        app.view(name, sql="SELECT * FROM web_access")
    with pytest.raises(DefinitionError) as table:
        app.table(name, "people.csv")
    assert fields(view.value) == (f"view {name!r}", "name", repr(name))
    assert hint in str(view.value)
    assert hint in str(table.value)


def test_a_lambda_needs_a_name(app: Pipeline) -> None:
    with pytest.raises(DefinitionError, match="or name="):
        app.view(key="ip")(lambda web_access: web_access)


def test_two_things_of_one_bound_name_are_refused(app: Pipeline) -> None:
    line = app.topics["web.access"].place.line
    for define in (
        lambda: app.topic("web-access", DDL),
        lambda: app.table("web_access", "x.csv"),
        lambda: app.view("web_access", sql="SELECT * FROM x"),
    ):
        with pytest.raises(NameTaken, match=rf"topic 'web.access' is bound as 'web_access'.*test_pipeline.py:{line}"):
            define()
    assert [*app.names()] == ["web_access"]


@pytest.mark.parametrize(
    ("options", "setting", "text"),
    [
        ({"merge": {"n": "smu"}}, "merge['n']", "did you mean 'sum'?"),
        ({"merge": "sum"}, "merge", "a rule for each column"),
        ({"merge": {"ip": "max"}, "key": "ip"}, "merge", "not part of the key"),
        ({"late": "dorp"}, "late", "did you mean 'drop'?"),
        ({"kept": "folded"}, "kept", '"fold" or "redo" or "whole"'),
        ({"key": ["ip", ""]}, "key", "a column's name"),
        ({"within": []}, "within", "at least one column"),
        ({"within": {}}, "within", "at least one column"),
        ({"within": {"acces": "ip"}}, "within", "inputs of the view: web_access"),
        ({"within": {"web_access": 5}}, "within", "a column's name"),
        ({"horizon": "soon"}, "horizon", "a number and a unit"),
        ({"trigger": "0s"}, "trigger", "more than zero"),
        ({"changelog": "My Changes"}, "changelog", "the name of a topic"),
        ({"kye": "ip"}, "kye", "did you mean 'key'?"),
    ],
)
def test_an_option_that_cannot_be_is_refused_at_once(
    app: Pipeline, options: dict[str, Any], setting: str, text: str
) -> None:
    with pytest.raises(DefinitionError) as caught:

        @app.view(**options)
        def hits(web_access: Any) -> Any:
            return web_access

    assert (caught.value.thing, caught.value.setting, caught.value.view) == ("view 'hits'", setting, "hits")
    assert text in str(caught.value)
    assert "def hits(web_access)" in str(caught.value)
    assert app.views == {}


def test_groups_of_two_inputs_have_as_many_columns(app: Pipeline) -> None:
    with pytest.raises(DefinitionError, match="as many columns for each input"):
        app.view("v", sql="SELECT * FROM a JOIN b", within={"a": ["x", "y"], "b": "x"})


def test_a_changelog_has_one_writer(app: Pipeline) -> None:
    app.view("one", sql="SELECT * FROM web_access", changelog="changes")
    with pytest.raises(DefinitionError, match="view 'one' writes it"):
        app.view("two", sql="SELECT * FROM web_access", changelog="changes")


def test_sql_must_read_something(app: Pipeline) -> None:
    with pytest.raises(DefinitionError, match="a SELECT that reads"):
        app.view("one", sql="SELECT 1")


def of_star(*args: Any) -> Any: ...
def of_stars(web_access: Any, **others: Any) -> Any: ...
def of_default(web_access: Any, limit: int = 10) -> Any: ...
def of_slash(web_access: Any, /) -> Any: ...
def of_nothing() -> Any: ...


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (of_star, "*args"),
        (of_stars, "**others"),
        (of_default, "limit=10"),
        (of_slash, "before '/'"),
        (of_nothing, "none"),
    ],
)
def test_parameters_that_nothing_can_be_bound_to_are_refused(
    app: Pipeline, function: Callable[..., Any], found: str
) -> None:
    with pytest.raises(ViewFunctionError) as caught:
        app.view(function)
    assert found in caught.value.found
    assert f"def {function.__name__}(" in str(caught.value)


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    app = Pipeline("shop")
    for name in ("orders", "refunds", "customers"):
        app.topic(name, "day date")

    @app.view(key="day")
    def revenue(order: Any, refunds: Any) -> Any:
        return order

    with pytest.raises(BindingError) as caught:
        app.inputs_of(app.views["revenue"])
    place = app.views["revenue"].place
    assert str(caught.value) == (
        "pipeline: view 'revenue' cannot be bound\n"
        f"  {place}   def revenue(order, refunds)\n"
        "  nothing is named 'order'; known names: orders, refunds, customers\n"
        "  did you mean 'orders'?"
    )


@pytest.mark.parametrize(
    ("location", "options", "setting", "text"),
    [
        (None, {}, "location", "either a location"),
        ("a.csv", {"topic": "web.access", "key": "ip"}, "location", "and not both"),
        ("a.xlsx", {}, "location", 'format="csv"'),
        ("s3://bucket/a.csv", {}, "location", "a database url"),
        (5, {}, "location", "a path or a database url"),
        ("a.csv", {"delimeter": ";"}, "delimeter", "did you mean 'delimiter'?"),
        ("a.csv", {"header": "yes"}, "header", "True or False"),
        ("a.csv", {"schema": "a itn"}, "schema", "expected: one of"),
        ("a", {"format": "cvs"}, "format", "did you mean 'csv'?"),
        ("sqlite:a.db", {"table": "x", "query": "SELECT 1"}, "query", "and not both"),
        (None, {"topic": "web.access"}, "key", "tell one row"),
        (None, {"topic": 5, "key": "ip"}, "topic", "the name of a topic"),
        (None, {"topic": "web.access", "key": "ip", "header": True}, "header", "no options"),
    ],
)
def test_a_table_that_cannot_be_is_refused_at_once(
    app: Pipeline, location: Any, options: dict[str, Any], setting: str, text: str
) -> None:
    with pytest.raises(DefinitionError) as caught:
        app.table("people", location, **options)
    assert (caught.value.thing, caught.value.setting) == ("table 'people'", setting)
    assert text in str(caught.value)
