"""The log as a whole: making, finding and deleting topics."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import (
    CorruptionError,
    LogUrlError,
    SchemaError,
    TopicDefinitionError,
    TopicExists,
    TopicNameError,
    UnknownTopic,
)
from penstock.log.folder_log import FolderLog
from tests.log.rows import SCHEMA, numbers_of, rows, small_topic


def test_a_topic_is_found_again_with_all_its_settings(tmp_path: Path) -> None:
    with FolderLog(tmp_path) as log:
        made = log.create(
            "orders.eu", SCHEMA, key=["user", "n"], event_time="time", lateness="90s", partitions=3,
            retention_age="7 days", retention_bytes=10**9, compact=True, durability="os", segment_bytes=1 << 20,
            values="avro",
        ).definition  # fmt: skip
    with FolderLog(f"dir:{tmp_path}") as log:
        assert log.topic("orders.eu").definition == made
        assert log.topics() == ["orders.eu"]


def test_opening_a_log_writes_nothing(tmp_path: Path) -> None:
    with FolderLog(tmp_path / "none") as log:
        assert log.topics() == []
        with pytest.raises(UnknownTopic):
            log.topic("a")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("url", ["dir:", "", "s3:bucket"])
def test_an_unknown_address_is_refused_with_what_is_known(url: str) -> None:
    with pytest.raises(LogUrlError, match="dir:PATH"):
        FolderLog(url)


@pytest.mark.parametrize("name", ["", "Orders", "-a", ".a", "a/b", "a" * 129, "a b", "../a", "ä"])
def test_names_that_could_harm_are_refused(tmp_path: Path, name: str) -> None:
    with FolderLog(tmp_path) as log, pytest.raises(TopicNameError):
        log.create(name, SCHEMA)


def test_an_unknown_topic_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with FolderLog(tmp_path) as log:
        log.create("orders", SCHEMA)
        with pytest.raises(UnknownTopic, match="did you mean 'orders'") as caught:
            log.topic("order")
        assert caught.value.known == ("orders",)


def test_a_name_is_taken_once(tmp_path: Path) -> None:
    with FolderLog(tmp_path) as log:
        first = log.create("orders", SCHEMA)
        with pytest.raises(TopicExists):
            log.create("orders", SCHEMA)
        assert log.create("orders", "other int", exist_ok=True) is first


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"key": "usr"}, "key"),
        ({"event_time": "user"}, "event_time"),
        ({"event_time": "tim"}, "event_time"),
        ({"partitions": 0}, "partitions"),
        ({"segment_bytes": 1}, "segment_bytes"),
        ({"retention_bytes": 0}, "retention_bytes"),
        ({"durability": "memory"}, "durability"),
        ({"values": "xml"}, "values"),
        ({"compact": True}, "compact"),
    ],
)
def test_settings_that_do_not_fit_are_named(tmp_path: Path, settings: dict[str, object], setting: str) -> None:
    with FolderLog(tmp_path) as log, pytest.raises(TopicDefinitionError) as caught:
        log.create("orders", SCHEMA, **settings)
    assert caught.value.setting == setting
    assert not (tmp_path / "topics/orders").exists()


def test_the_logs_own_column_names_cannot_be_taken(tmp_path: Path) -> None:
    with FolderLog(tmp_path) as log, pytest.raises(SchemaError, match="begin with '_'"):
        log.create("orders", "_offset bigint")


def test_patterns_leave_dead_letters_out_unless_asked(tmp_path: Path) -> None:
    with FolderLog(tmp_path) as log:
        for name in ("orders.eu", "orders.us", "orders.eu.dead", "returns"):
            log.create(name, SCHEMA)
        assert log.topics("orders.*") == ["orders.eu", "orders.us"]
        assert log.topics("*.dead") == ["orders.eu.dead"]
        assert len(log.topics(dead=True)) == 4


def test_a_topic_made_again_is_another_topic(tmp_path: Path) -> None:
    with FolderLog(tmp_path) as log:
        first = small_topic(log)
        first.append(rows([1]))
        log.delete("events")
        assert log.topics() == []
        assert list(tmp_path.glob("deleted-*")) == []
        second = small_topic(log)
        assert second.definition.id != first.definition.id
        assert numbers_of(second) == []


def test_a_damaged_definition_is_named_and_not_overwritten(tmp_path: Path) -> None:
    with FolderLog(tmp_path) as log:
        small_topic(log)
        path = tmp_path / "topics/events/topic.json"
        path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(CorruptionError) as caught:
            log.topic("events")
        assert caught.value.path == path


def test_many_processes_make_the_same_topic_at_once(tmp_path: Path) -> None:
    script = (
        "import sys; from penstock.log.log import Log; from tests.log.rows import *\n"
        "small_topic(Log(sys.argv[1], background=False), exist_ok=True, partitions=2).append(rows([1]))\n"
    )
    workers = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path)]) for _ in range(4)]
    assert [worker.wait() for worker in workers] == [0] * 4
    with FolderLog(tmp_path) as log:
        assert numbers_of(log.topic("events")) == [1] * 4
