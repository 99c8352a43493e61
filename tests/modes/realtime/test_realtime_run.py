"""How a run record at a time ends: by a topic that grows, by a query that fails, and well. Without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock import Log
from penstock.errors import KafkaUnavailable, RealtimeFailed, SchemaOutgrown
from penstock.modes import realtime
from penstock.modes.realtime import Query, RealtimeRun
from penstock.settings import Settings

pytestmark = pytest.mark.spark


class FakeQuery:
    """What a run asks of a query of Spark."""

    def __init__(self, failure: str | None = None) -> None:
        self.failure = failure
        self.isActive = failure is None
        self.recentProgress: list[dict[str, Any]] = []

    def exception(self) -> str | None:
        return self.failure

    def stop(self) -> None:
        self.isActive = False

    def end_batch(self, number: int) -> None:
        self.recentProgress.append({"batchId": number, "numInputRows": 1, "durationMs": {}})


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path) as opened:
        opened.create("clicks", "n int")
        yield opened


def run_of(log: Log, monkeypatch: pytest.MonkeyPatch, **queries: FakeQuery) -> RealtimeRun:
    monkeypatch.setattr(realtime, "GROWN_LOOK_SECONDS", 0.0)
    engine: Any = SimpleNamespace(spark=None, pipeline=SimpleNamespace(name="app"))
    journal: Any = SimpleNamespace(note_if_due=lambda: None)
    run = RealtimeRun(engine, Settings(), journal, None)
    topic = log.topic("clicks")
    for name, query in queries.items():
        running: Any = query
        run.queries.append(Query(name, running, None, topic, topic.definition))
    return run


def test_a_topic_that_grows_ends_the_run_before_any_record_says_so(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(log, monkeypatch, clicks=FakeQuery())
    run.look()
    log.topic("clicks").alter(lateness="1 hour")
    run.look()
    log.topic("clicks").alter(schema="n int, m int")
    for look in (run.look, run.finish):
        with pytest.raises(SchemaOutgrown) as refused:
            look()
        assert (refused.value.expected, refused.value.found) == ("n int", "n int, m int")


def test_brokers_that_are_away_are_asked_again(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(log, monkeypatch, clicks=FakeQuery())

    def refresh() -> None:
        raise KafkaUnavailable("host:9092", "nobody answers")

    monkeypatch.setattr(run.queries[0].topic, "refresh", refresh)
    run.look()


def test_a_query_that_fails_while_the_run_is_stopped_is_told(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = FakeQuery(), FakeQuery("DIVIDE_BY_ZERO")
    run = run_of(log, monkeypatch, bad=bad, good=good)
    ended: list[str] = []

    def pause(_: float) -> None:
        # The failure is seen first; the other one still comes to the end of its batch.
        ended.append("batch")
        good.end_batch(0)

    monkeypatch.setattr("penstock.modes.realtime.time.sleep", pause)
    with pytest.raises(RealtimeFailed, match="DIVIDE_BY_ZERO"):
        run.finish()
    assert ended
    assert not good.isActive


def test_queries_that_come_to_the_end_of_their_batch_are_ended(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    queries = {name: FakeQuery() for name in ("one", "two")}
    run = run_of(log, monkeypatch, **queries)
    for each in queries.values():
        each.end_batch(0)
    run.finish()
    assert not any(each.isActive for each in queries.values())
