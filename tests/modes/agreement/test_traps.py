"""Every trap gives in a stream, whatever the size of its steps, the rows that a batch gives."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.modes.agreement.trap_views import KEPT, events, others, people, traps
from tests.modes.harness import Lab, Rows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lab:
    folder = tmp_path_factory.mktemp("traps")
    made = Lab(folder, traps(folder), spark)
    rows, arrived = events()
    made.append("events", rows, arrived)
    made.append("others", others())
    made.append("people_changes", people())
    return made


@pytest.fixture(scope="module")
def expected(lab: Lab) -> Rows:
    return lab.batch()


def test_every_view_is_kept_as_it_should_be(lab: Lab, expected: Rows) -> None:
    assert {view.name: view.keeping.how for view in lab.compiled()} == KEPT
    assert not [name for name, rows in expected.items() if not rows]


def test_static_rows_of_a_union_over_a_view_are_there_once(expected: Rows) -> None:
    counts = {k: count for k, count, *_ in expected["numbers"]}
    assert dict(expected["filled"]) == {**counts, "z": 0}
    assert {*expected["with_blue"]} == {(k, count) for k, count, *_ in expected["few"]} | {("b!", 0)}


@pytest.mark.parametrize("max_rows", [None, 10, pytest.param(3, marks=pytest.mark.long)])
def test_steps_of_any_size_give_the_rows_of_a_batch(lab: Lab, expected: Rows, max_rows: int | None) -> None:
    assert not differing(expected, lab.stream(max_rows))


@pytest.mark.parametrize("max_rows", [20, pytest.param(5, marks=pytest.mark.long)])
def test_batch_parts_and_speed_parts_add_up_to_the_rows_of_a_batch(lab: Lab, expected: Rows, max_rows: int) -> None:
    assert not differing(expected, lab.as_lambda(max_rows))


def test_a_replay_in_the_middle_of_a_stream_gives_the_rows_of_a_batch(lab: Lab, expected: Rows) -> None:
    assert not differing(expected, lab.as_kappa(20))


def differing(expected: Rows, found: Rows) -> dict[str, tuple[object, object]]:
    return {name: (rows, found[name]) for name, rows in expected.items() if rows != found[name]}
