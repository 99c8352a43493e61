"""Alerts as users define them: what is understood, and what is refused at their line."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import Pipeline
from penstock.errors import AlertFunctionError, BindingError, DefinitionError, NameTaken

MAIL = "mailto:ops@example.com"


def app() -> Pipeline:
    made = Pipeline("shop")
    made.topic("access", "url string, status int")
    made.view("errors", key="url", sql="SELECT url, count(*) AS errors FROM access GROUP BY url")
    return made


def test_an_alert_is_called_like_its_view_unless_that_is_taken() -> None:
    shop = app()
    shop.alert("errors", to=MAIL, when="errors > 20")
    shop.alert("errors", to=[MAIL, "topic:alarms"], every="1h")
    shop.alert("errors", to=MAIL, name="third", every=timedelta(seconds=5))
    assert {name: (each.view, each.receivers, each.every, each.when) for name, each in shop.alerts.items()} == {
        "errors": ("errors", (MAIL,), timedelta(minutes=10), "errors > 20"),
        "errors_2": ("errors", (MAIL, "topic:alarms"), timedelta(hours=1), None),
        "third": ("errors", (MAIL,), timedelta(seconds=5), None),
    }
    assert {Path(each.place.file).name for each in shop.alerts.values()} == {"test_alerts.py"}


def test_a_function_gives_the_alert_its_name_and_stays_a_function() -> None:
    shop = app()

    @shop.alert("errors", to=MAIL, when="errors > 20")
    def too_many(row: dict[str, Any]) -> str:
        return f"{row['url']} failed"

    @shop.alert("errors", to=MAIL, name="named")
    def grown(row: dict[str, Any], before: dict[str, Any] | None) -> bool:
        return before is not None

    assert too_many({"url": "/"}) == "/ failed"
    assert [*shop.alerts] == ["too_many", "named"]
    assert (shop.alerts["too_many"].parameters, shop.alerts["named"].parameters) == (1, 2)
    assert shop.alerts["too_many"].place.text == "def too_many(row)"


def test_a_name_is_given_once() -> None:
    shop = app()
    shop.alert("errors", to=MAIL, name="one")
    with pytest.raises(NameTaken):
        shop.alert("errors", to=MAIL, name="one")
    with pytest.raises(NameTaken):

        @shop.alert("errors", to=MAIL)
        def one(row: object) -> bool:
            return True


@pytest.mark.parametrize(
    ("options", "setting"),
    [
        ({"to": "ops@example.com"}, "to"),
        ({"to": "http://example.com/x"}, "to"),
        ({"to": []}, "to"),
        ({"to": [MAIL, MAIL]}, "to"),
        ({"to": 5}, "to"),
        ({"to": [5]}, "to"),
        ({"to": "mailto:"}, "to"),
        ({"to": "topic:Big Letters"}, "to"),
        ({"to": MAIL, "every": "often"}, "every"),
        ({"to": MAIL, "every": "0s"}, "every"),
        ({"to": MAIL, "every": None}, "every"),
        ({"to": MAIL, "when": ""}, "when"),
        ({"to": MAIL, "name": "Two Words"}, "name"),
        ({"to": MAIL, "name": "_penstock_x"}, "name"),
    ],
)
def test_what_does_not_fit_is_refused_at_the_users_line(options: dict[str, Any], setting: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        app().alert("errors", **options)
    assert caught.value.setting == setting
    assert caught.value.place is not None
    assert Path(caught.value.place.file).name == "test_alerts.py"


@pytest.mark.parametrize(
    "to",
    [
        "http://example.com/services/secret",
        "https://user:secret@example.com/services/secret",
        "https://example.com:abc/secret",
        "https://[::1/secret",
        "http://example.com/@secret",
        "example.com/secret",
        {"https://example.com/secret": 1},
        [("https://example.com/secret",)],
        ["https://example.com/secret", "https://example.com/secret"],
    ],
)
def test_a_secret_in_an_address_is_not_repeated_in_an_error(to: Any) -> None:
    with pytest.raises(DefinitionError) as caught:
        app().alert("errors", to=to)
    assert "secret" not in str(caught.value)
    with pytest.raises(DefinitionError) as caught:
        app().alert("errors", to="https://example.com/secret", every="often")
    assert "secret" not in str(caught.value)
    with pytest.raises(DefinitionError) as caught:
        app().alert("errors", to="https://example.com/secret")(lambda _: True)
    assert "secret" not in str(caught.value)
    assert "test_alerts.py:" in str(caught.value)


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("def f(row, before=None): ...", 2),
        ("def f(row=None, before=None): ...", 2),
        ("def f(row, before=None, limit=20): ...", 2),
        ("def f(row, *, limit=20): ...", 1),
    ],
)
def test_a_parameter_with_a_default_is_given_its_value_too(code: str, count: int) -> None:
    names: dict[str, Any] = {}
    exec(code, names)
    shop = app()
    shop.alert("errors", to=MAIL)(names["f"])
    assert shop.alerts["f"].parameters == count


@pytest.mark.parametrize("code", ["def f(): ...", "def f(a, b, c): ...", "def f(*rows): ...", "def f(*, row): ..."])
def test_a_function_that_cannot_be_called_with_a_row_is_refused(code: str) -> None:
    names: dict[str, Any] = {}
    exec(code, names)
    with pytest.raises(AlertFunctionError) as caught:
        app().alert("errors", to=MAIL)(names["f"])
    assert "def f(row)" in caught.value.hint


def test_an_alert_of_an_unknown_view_names_the_nearest() -> None:
    shop = app()
    shop.alert("erors", to=MAIL)
    [problem] = shop.check_names()
    assert isinstance(problem, BindingError)
    assert (problem.name, problem.hint) == ("erors", "did you mean 'errors'?")
    assert problem.place == shop.alerts["erors"].place
