"""A topic of changes as a table: refused where a row's deletion may be read before what it deletes."""

from __future__ import annotations

import pytest

from penstock import Pipeline
from penstock.errors import DefinitionError
from penstock.upkeep.changing_table import as_view

pytestmark = pytest.mark.spark

CHANGES = "key string, operation string, before struct<id: bigint, n: int>, after struct<id: bigint, n: int>"


def app(ddl: str = CHANGES, **options: object) -> Pipeline:
    made = Pipeline("mirror")
    made.topic("changes", ddl, **options)  # type: ignore[arg-type]
    made.table("people", topic="changes", key="id")
    return made


def test_changes_of_one_row_in_several_partitions_are_refused() -> None:
    """A step reads as far as it does in each partition, so a row that was deleted in one would come back by another."""
    pipeline = app(partitions=2)
    with pytest.raises(DefinitionError, match="2 partitions and no key") as caught:
        as_view(pipeline.tables["people"], pipeline)
    assert (caught.value.thing, caught.value.setting) == ("table 'people'", "topic")
    assert caught.value.place == pipeline.tables["people"].place


@pytest.mark.parametrize(
    ("ddl", "options"),
    [(CHANGES, {}), (CHANGES, {"partitions": 2, "key": "key"}), ("id bigint, n int", {"partitions": 2})],
    ids=["one partition", "a key", "no deletions"],
)
def test_changes_that_stay_in_order_are_a_table(ddl: str, options: dict[str, object]) -> None:
    pipeline = app(ddl, **options)
    assert as_view(pipeline.tables["people"], pipeline).key == ("id",)
