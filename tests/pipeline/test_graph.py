from __future__ import annotations

import pytest

from penstock import Pipeline
from penstock.errors import BindingError, CycleError


def pipeline(**views: str) -> Pipeline:
    """Views by the names they read; `t` and `u` are topics, `fixed` a static table, `moving` one of changes."""
    app = Pipeline("app")
    app.topic("t", "a int")
    app.topic("u", "a int")
    app.table("fixed", "fixed.csv")
    app.table("moving", topic="u", key="a")
    for name, inputs in views.items():
        app.view(name, sql=f"SELECT * FROM {', '.join(inputs.split())}")
    return app


def names(views: tuple[object, ...]) -> list[str]:
    return [view.name for view in views]  # type: ignore[attr-defined]


def test_views_come_after_those_they_read_else_as_defined() -> None:
    assert names(pipeline(top="middle low", low="t", middle="low fixed", other="u").order()) == [
        "low",
        "middle",
        "top",
        "other",
    ]


def test_views_are_one_set_if_connected_through_views_not_through_a_topic() -> None:
    app = pipeline(a="t", b="a", c="t fixed", d="u fixed", e="d c", f="t")
    assert [names(each) for each in app.sets()] == [["a", "b"], ["c", "d", "e"], ["f"]]


def test_views_over_one_topic_of_changes_are_one_set() -> None:
    app = pipeline(a="t moving", b="t", c="moving")
    assert [names(each) for each in app.sets()] == [["a", "c"], ["b"]]


def test_a_long_chain_of_views_needs_no_deep_stack() -> None:
    chain = {f"v{number}": f"v{number + 1}" for number in range(3000)} | {"v3000": "t"}
    assert names(pipeline(**chain).order())[:2] == ["v3000", "v2999"]


def test_a_circle_is_named_whole_with_each_place() -> None:
    app = pipeline(outside="a", a="b t", b="c", c="t a")
    with pytest.raises(CycleError) as caught:
        app.order()
    assert caught.value.views == ("a", "b", "c")
    assert [place.line for place in caught.value.places] == [app.views[name].place.line for name in ("a", "b", "c")]
    for step in ("'a' reads 'b'", "'b' reads 'c'", "'c' reads 'a'"):
        assert step in str(caught.value)


def test_a_view_that_reads_itself_is_a_circle() -> None:
    with pytest.raises(CycleError, match="view 'a' reads itself"):
        pipeline(a="a").sets()


def test_every_unknown_name_is_reported_and_the_first_is_raised() -> None:
    app = pipeline(a="tt", b="a nobody", c="c")
    app.table("lost", topic="tu", key="a")
    problems = app.check_names()
    assert [(type(each), getattr(each, "name", None), each.view) for each in problems] == [
        (BindingError, "tu", None),
        (BindingError, "tt", "a"),
        (BindingError, "nobody", "b"),
        (CycleError, None, "c"),
    ]
    with pytest.raises(BindingError, match="'tu'"):
        app.order()


def test_a_pipeline_without_problems_has_none() -> None:
    assert pipeline(a="t", b="a").check_names() == []
