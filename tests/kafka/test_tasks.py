"""Tasks of Spark that read from Kafka: those of one worker share a log, without Spark in between."""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import TopicReplaced
from penstock.events.schema import to_spark
from penstock.log.log import Log
from penstock.spark import source
from penstock.spark.options import SourceOptions
from tests.services.kafka import KafkaCluster

pytestmark = pytest.mark.services


def test_tasks_of_one_worker_share_a_log_and_those_of_another_process_do_not(
    kafka: KafkaCluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"kafka://{kafka.bootstrap}"
    with Log(url, background=False) as log:
        topic = log.create(name, "n bigint")
        topic.append(pa.table({"n": [1, 2, 3]}))
        task = source.Task(topic.definition.id, [source.Span(0, 0, 3)])
    options = SourceOptions.parse({"log": url, "topic": name})
    schema = to_spark(pa.schema([("n", pa.int64())]))
    opened: list[Log] = []

    def opening(*given: Any, **more: Any) -> Log:
        opened.append(Log(*given, **more))
        return opened[-1]

    def rows() -> int:
        return sum(batch.num_rows for batch in source.batches_of(options, schema, task))

    monkeypatch.setattr(source, "Log", opening)
    monkeypatch.setattr(source, "_kept", {})
    assert ([rows() for _ in range(3)], len(opened)) == ([3, 3, 3], 1)
    with pytest.raises(TopicReplaced):
        [*source.batches_of(options, schema, source.Task("0" * 32, task.spans))]
    assert ([rows() for _ in range(2)], len(opened)) == ([3, 3], 2), "after an error it is opened anew"
    next(source.batches_of(options, schema, task))  # Somebody wants only the first rows.
    assert (rows(), len(opened)) == (3, 3)
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)  # As in a child of a fork.
    assert (rows(), len(opened)) == (3, 4)
    for each in opened:
        each.close()
