"""Text that is not UTF-8: refused when it is stored, and no reason to stop where an older log has it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock import Pipeline
from penstock.errors import RecordsRefused
from penstock.modes.batch import run_batch
from penstock.modes.stream import run_stream
from tests.modes.harness import Lab, rows_of
from tests.postgresql import OwnServer

pytestmark = pytest.mark.spark

EVENTS = pa.table(
    {
        "id": [1, 2, 3],
        "name": pa.array([b"a", b"caf\xe9", b"b"], pa.binary()).view(pa.string()),
    }
)


def pipeline() -> Pipeline:
    app = Pipeline("texts")
    app.topic("events", "id bigint, name string")
    app.view("named", key="id", sql="SELECT id, name FROM events")
    app.view("nested", key="id", sql="SELECT id, struct(name) AS name FROM events")
    app.view("counts", key="name", sql="SELECT name, count(*) AS events FROM events GROUP BY name")
    app.view("shouted", key="id", sql="SELECT id, upper(name) AS name FROM named")
    return app


def test_append_refuses_the_batch_and_a_producer_sets_the_record_aside(tmp_path: Path, spark: SparkSession) -> None:
    topic = Lab(tmp_path, pipeline(), spark).topics["events"]
    with pytest.raises(RecordsRefused, match="UTF-8"):
        topic.append(EVENTS)
    assert sum(topic.end().values()) == 0
    with topic.producer() as producer:
        producer.send(EVENTS)
    assert topic.slice().column("id").to_pylist() == [1, 3]
    [letter] = topic.log.topic("events.dead").slice().to_pylist()
    assert b"caf\\\\xe9" in letter["raw"]


def check_that_it_stops_no_one(lab: Lab) -> None:
    [partition] = lab.topics["events"].partitions
    [batch] = EVENTS.to_batches()
    partition.append(batch)  # As an older version stored it: unchecked.
    with lab.engine() as (engine, store):
        run_batch(engine)
        batched = rows_of(engine, store)
    with lab.engine() as (engine, store):
        run_stream(engine, once=True, max_rows=1)
        assert rows_of(engine, store) == batched
    assert batched["named"] == [(1, "a"), (3, "b")]
    assert batched["nested"] == [(1, ("a",)), (3, ("b",))]
    assert batched["counts"] == [("a", 1), ("b", 1)]
    assert batched["shouted"] == [(1, "A"), (3, "B")]
    letters = lab.log.topic("texts.named.dead").slice().to_pylist()
    assert {(each["column"], each["reason"]) for each in letters} == {("name", "its text is not UTF-8")}


def test_a_row_with_such_text_is_a_dead_letter_of_its_view(tmp_path: Path, spark: SparkSession) -> None:
    check_that_it_stops_no_one(Lab(tmp_path, pipeline(), spark))


@pytest.mark.system
def test_so_it_is_in_postgresql(tmp_path: Path, spark: SparkSession, own_postgresql: OwnServer) -> None:
    check_that_it_stops_no_one(Lab(tmp_path, pipeline(), spark, own_postgresql.new_database))
