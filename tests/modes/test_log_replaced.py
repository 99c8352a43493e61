"""A topic that lost or exchanged records is refused by every run that would continue from a fence in it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from penstock import Pipeline
from penstock.errors import LogReplaced, TopicDeleted
from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic
from penstock.modes.batch import run_batch
from penstock.modes.engine import Engine
from penstock.modes.replays import run_kappa
from penstock.modes.rounds import run_lambda
from penstock.modes.stream import run_stream
from penstock.modes.topics import make_topics
from tests.modes.harness import Lab, rows_of

pytestmark = pytest.mark.spark

RUNS: dict[str, Callable[[Engine], object]] = {
    "stream": lambda engine: run_stream(engine, once=True),
    "lambda": lambda engine: run_lambda(engine, once=True),
    "kappa": lambda engine: run_kappa(engine, once=True),
}


def counts() -> Pipeline:
    app = Pipeline("counts")
    app.topic("events", "k string", partitions=2, key="k")
    app.view("hits", key="k", sql="SELECT k, count(*) AS n FROM events GROUP BY k")
    return app


def append(lab: Lab, *keys: str) -> None:
    lab.append("events", [{"k": key} for key in keys])


def recreate_topic(lab: Lab) -> None:
    lab.log.delete("events")
    lab.topics = {name: lab.log.topic(name) for name in make_topics(lab.pipeline, lab.log)}


def reopen_log(lab: Lab, change: Callable[[], None]) -> None:
    lab.log.close()
    change()
    lab.log = FolderLog(lab.folder / "log", background=False)
    lab.topics = {"events": lab.log.topic("events")}


def run(lab: Lab) -> dict[str, list[tuple[object, ...]]]:
    with lab.engine(name="views") as (engine, store):
        run_stream(engine, once=True)
        return dict(rows_of(engine, store))


@pytest.mark.parametrize("mode", RUNS)
def test_a_recreated_topic_is_refused_until_the_view_is_rebuilt(tmp_path: Path, spark: SparkSession, mode: str) -> None:
    lab = Lab(tmp_path, counts(), spark)
    append(lab, *"aabb")
    assert run(lab) == {"hits": [("a", 2), ("b", 2)]}
    recreate_topic(lab)
    append(lab, *"aaaabbbb")
    with lab.engine(name="views") as (engine, store):
        with pytest.raises(LogReplaced, match="penstock view rebuild hits") as refused:
            RUNS[mode](engine)
        assert (refused.value.topic, refused.value.views) == ("events", ["hits"])
        assert rows_of(engine, store) == {"hits": [("a", 2), ("b", 2)]}
        run_batch(engine)
    append(lab, "a")
    assert run(lab) == {"hits": [("a", 5), ("b", 4)]}


@pytest.mark.parametrize("later", [[], [*"aaaabbbb"]], ids=["shorter", "grown beyond the fence"])
def test_a_log_restored_from_an_older_copy_is_refused(tmp_path: Path, spark: SparkSession, later: list[str]) -> None:
    """As after a power cut with `durability="os"`: the same topic, without its last records."""
    lab = Lab(tmp_path, counts(), spark)
    append(lab, *"aabb")
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    append(lab, *"ab")
    assert run(lab) == {"hits": [("a", 3), ("b", 3)]}

    def restore() -> None:
        shutil.rmtree(tmp_path / "log")
        (tmp_path / "copy").rename(tmp_path / "log")

    reopen_log(lab, restore)
    if later:
        append(lab, *later)
    with pytest.raises(LogReplaced, match="arrived at" if later else "ends at offset 2, and the views have read it up"):
        run(lab)


def test_a_topic_of_another_id_with_the_very_same_records_is_gone_on_with(tmp_path: Path, spark: SparkSession) -> None:
    """As where a log was moved to a place that had a topic of that name."""
    lab = Lab(tmp_path, counts(), spark)
    append(lab, *"aabb")
    run(lab)
    records = lab.topics["events"].slice()
    before = lab.topics["events"].definition.id
    recreate_topic(lab)
    assert lab.topics["events"].definition.id != before
    for partition in lab.topics["events"].partitions:
        mine = records.filter(pc.equal(records.column("_partition"), partition.number))
        stamps = mine.column("_arrived").combine_chunks()
        partition.append(mine.select(["k"]).combine_chunks().to_batches()[0], arrived=stamps)
    append(lab, "a")
    assert run(lab) == {"hits": [("a", 3), ("b", 2)]}


def test_a_topic_of_which_nothing_was_read_may_be_recreated(tmp_path: Path, spark: SparkSession) -> None:
    lab = Lab(tmp_path, counts(), spark)
    run(lab)
    recreate_topic(lab)
    append(lab, "a")
    assert run(lab) == {"hits": [("a", 1)]}


def test_a_topic_recreated_during_a_run_ends_the_run(tmp_path: Path, spark: SparkSession) -> None:
    lab = Lab(tmp_path, counts(), spark)
    append(lab, *"aabb")

    def replace_log(*_: object) -> None:
        other = FolderLog(tmp_path / "log", background=False)
        other.delete("events")
        make_topics(lab.pipeline, other)
        other.close()

    with lab.engine(name="views") as (engine, _), pytest.raises((LogReplaced, TopicDeleted)):
        run_stream(engine, on_step=replace_log)


def test_what_retention_removed_is_no_reason_to_refuse(tmp_path: Path, spark: SparkSession) -> None:
    lab = Lab(tmp_path, counts(), spark)
    append(lab, *"aabb")
    run(lab)
    topic = lab.topics["events"]
    topic.seal(active=True)
    topic.alter(retention_bytes=1)
    assert sum(each.records for each in topic.retain()) == 4
    append(lab, *"ab")
    assert run(lab) == {"hits": [("a", 3), ("b", 3)]}


def test_what_retention_removes_while_a_run_looks_is_no_reason_to_refuse(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path, counts(), spark)
    append(lab, *"aabb")
    run(lab)
    topic = lab.topics["events"]
    topic.seal(active=True)
    topic.alter(retention_bytes=1)
    append(lab, *"ab")
    ends = FolderTopic.end

    def retains(self: FolderTopic) -> dict[int, int]:
        self.retain()
        return ends(self)

    monkeypatch.setattr(FolderTopic, "end", retains)
    assert run(lab) == {"hits": [("a", 3), ("b", 3)]}
