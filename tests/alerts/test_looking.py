"""What an alert's function does never stops a step."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
import pytest

from penstock.alerts import looking
from penstock.alerts.looking import Found, look
from penstock.upkeep.changes import Changes
from penstock.upkeep.step import finish
from tests.alerts.test_telling import SHAPE, alert

pytestmark = pytest.mark.spark  # What they test imports PySpark.


class Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def asked(function: Callable[..., Any], *receivers: str) -> Found:
    """What the function's alert says of one new row. No condition, no Spark."""
    plain = alert(*receivers)
    worded = replace(plain, spec=replace(plain.spec, function=function))
    rows = SHAPE.rows(pa.table({"url": ["/a"], "errors": pa.array([1], pa.int64())}))
    changes = Changes(rows.slice(0, 0), rows)
    [found] = finish(look(cast(Any, None), [worded], {"errors": changes}))
    return found


def surrogate(_: object) -> None:
    raise ValueError(b"caf\xff".decode("utf-8", "surrogateescape"))


def wordless(_: object) -> None:
    raise Wordless


def leaves(_: object) -> None:
    sys.exit(3)


@pytest.mark.parametrize(
    ("function", "begins", "words"),
    [
        (surrogate, "ValueError in line", "caf?;"),
        (wordless, "Wordless in line", "cannot be put in words;"),
        (leaves, "SystemExit in line", ": 3;"),
    ],
)
def test_a_function_that_fails_in_whatever_way_is_left_out(
    function: Callable[..., Any], begins: str, words: str
) -> None:
    found = asked(function)
    assert found.rows.num_rows == 0
    assert (found.error or "").startswith(begins)
    assert words in (found.error or "")
    assert "'url': '/a'" in (found.error or "")
    assert (found.error or "").encode()


def test_somebody_who_wants_to_stop_the_run_can(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asked(interrupted)


def test_what_cannot_be_prepared_stops_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: object) -> Found:
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr(looking, "prepared", failing)
    assert asked(lambda _: True, "topic:alarms").error == "RuntimeError: a bug of ours"
