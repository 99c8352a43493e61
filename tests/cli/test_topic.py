"""penstock topic: make, list, show, change, delete."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.log.folder_log import FolderLog
from tests.cli.commands import fails, run
from tests.log.rows import rows

SCHEMA = "time timestamp, user string, n bigint"


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FolderLog:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_LOG_URL", raising=False)
    return FolderLog(tmp_path / "data" / "log", background=False)


def test_topic_is_made_with_all_its_settings(log: FolderLog) -> None:
    printed = run(
        "topic", "create", "access", "--schema", SCHEMA, "--key", "user, n", "--event-time", "time", "--lateness", "5m",
        "--partitions", "3", "--retention-age", "7d", "--retention-bytes", "10GB", "--segment-bytes", "64MiB",
        "--compact", "--durability", "os", "--values", "avro",
    )  # fmt: skip
    assert printed == "topic 'access' is made, with 3 partitions\n"
    definition = log.topic("access").definition
    assert (definition.key, definition.event_time, definition.partitions) == (("user", "n"), "time", 3)
    assert (definition.lateness.total_seconds(), definition.durability, definition.compact) == (300, "os", True)
    assert definition.retention_age is not None
    assert (definition.retention_age.days, definition.retention_bytes) == (7, 10**10)
    assert (definition.segment_bytes, definition.values) == (64 << 20, "avro")
    assert json.loads(run("topic", "show", "access", "--json"))["values"] == "avro"


def test_topic_that_is_there_is_an_error_unless_that_is_fine(log: FolderLog) -> None:
    run("topic", "create", "access", "--schema", SCHEMA)
    assert "is there already" in fails("topic", "create", "access", "--schema", SCHEMA)
    assert "is there already" in run("topic", "create", "access", "--schema", SCHEMA, "--if-not-exists")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--schema", "time timestam"], "timestam"),
        (["--schema", SCHEMA, "--key", "usr"], "did you mean 'user'?"),
        (["--schema", SCHEMA, "--lateness", "soon"], "is not a length of time"),
        (["--schema", SCHEMA, "--durability", "paper"], '"disk" or "os"'),
        (["--schema", SCHEMA, "--values", "xml"], '"json" or "avro"'),
        (["--schema", "`user-id` string", "--values", "avro"], "with the column 'user-id'"),
        (["--schema", SCHEMA, "--partitions", "0"], "1 to 1024"),
    ],
)
def test_definition_that_makes_no_sense_is_told_in_words(log: FolderLog, options: list[str], message: str) -> None:
    assert message in fails("topic", "create", "access", *options)
    assert log.topics() == []


def test_size_that_is_none_is_wrong_usage(log: FolderLog) -> None:
    assert "is not a size" in fails(
        "topic", "create", "access", "--schema", SCHEMA, "--retention-bytes", "much", code=2
    )


def test_list_shows_topics_that_match_and_dead_letters_on_demand(log: FolderLog) -> None:
    for name in ("orders.eu", "orders.us", "clicks", "clicks.dead"):
        log.create(name, SCHEMA)
    log.topic("orders.eu").partitions[0].append(rows(range(1500)))
    assert [each["topic"] for each in json.loads(run("topic", "list", "--json"))] == [
        "clicks",
        "orders.eu",
        "orders.us",
    ]
    assert "clicks.dead" in run("topic", "list", "--all")
    assert "1,500" in run("topic", "list", "orders.*")
    (line,) = json.loads(run("topic", "list", "orders.e*", "--json"))
    assert (line["records"], line["partitions"], line["damaged"]) == (1500, 1, False)


def test_list_goes_on_past_a_damaged_topic(log: FolderLog) -> None:
    log.create("bad", SCHEMA)
    log.create("good", SCHEMA)
    (log.topics_directory / "bad" / "topic.json").write_bytes(b"nonsense")
    found = json.loads(run("topic", "list", "--json"))
    assert [(each["topic"], each["damaged"]) for each in found] == [("bad", True), ("good", False)]
    assert "penstock log check" in run("topic", "list")


def test_empty_log_lists_nothing(log: FolderLog) -> None:
    assert json.loads(run("topic", "list", "--json")) == []
    run("topic", "list")


def test_show_tells_settings_partitions_and_groups(log: FolderLog) -> None:
    topic = log.create("access", SCHEMA, key="user", event_time="time", partitions=2)
    topic.partitions[1].append(rows(range(10)))
    topic.seal(active=True)
    topic.partitions[1].append(rows(range(5)))
    topic.alter(schema=SCHEMA + ", more string")
    run("consume", "access", "--group", "billing", "--max", "12")
    shown = json.loads(run("topic", "show", "access", "--json"))
    assert shown["schemas"] == [SCHEMA, SCHEMA + ", more string"]
    first, second = shown["partitions"]
    assert (first["records"], first["arrived"]) == (0, [None, None])
    assert (second["start"], second["end"], second["records"], second["sealed"], second["hot"]) == (0, 15, 15, 1, 1)
    (group,) = shown["groups"]
    assert (group["group"], group["members"], group["lag"], group["committed"]["1"]) == ("billing", 0, 3, 12)
    printed = run("topic", "show", "access")
    for word in ("10 minutes", "more string", "billing", "event_time"):
        assert word in printed


def test_the_schema_is_printed_for_people_and_for_other_programs(log: FolderLog) -> None:
    topic = log.create("access", "n int")
    topic.alter(schema="n int, word string")
    assert run("topic", "schema", "access") == "n int, word string\n"
    assert run("topic", "schema", "access", "--version", "0") == "n int\n"
    avro = json.loads(run("topic", "schema", "access", "--avro"))
    assert (avro["name"], [each["name"] for each in avro["fields"]]) == ("access", ["n", "word"])
    assert "it has 2, from 0 to 1" in fails("topic", "schema", "access", "--version", "2")
    log.create("odd", "`user-id` string")
    assert "Avro could not have the name 'user-id'" in fails("topic", "schema", "odd", "--avro")


def test_unknown_topic_names_the_nearest(log: FolderLog) -> None:
    log.create("access", SCHEMA)
    assert "did you mean 'access'?" in fails("topic", "show", "acces")


def test_alter_grows_the_schema_and_changes_settings(log: FolderLog) -> None:
    topic = log.create("access", SCHEMA, retention_age="1 day")
    run("topic", "alter", "access", "--add-column", "agent string", "--add-column", "size int", "--lateness", "1h")
    run("topic", "alter", "access", "--retention-age", "none", "--retention-bytes", "1kB")
    topic.refresh()
    definition = topic.definition
    assert definition.schemas[-1] == SCHEMA + ", agent string, size int"
    assert (definition.retention_age, definition.retention_bytes) == (None, 1000)
    assert definition.lateness.total_seconds() == 3600
    assert run("topic", "alter", "access", "--lateness", "1h") == "topic 'access' is as it was\n"


def test_alter_refuses_what_old_records_could_not_follow(log: FolderLog) -> None:
    log.create("access", SCHEMA)
    assert "'n'" in fails("topic", "alter", "access", "--schema", "time timestamp, user string, n int")


def test_delete_asks_and_needs_a_terminal_for_it(log: FolderLog) -> None:
    log.create("access", SCHEMA)
    assert "--yes" in fails("topic", "delete", "access")
    assert log.topics() == ["access"]
    assert run("topic", "delete", "access", "--yes") == "topic 'access' is deleted\n"
    assert log.topics() == []


@pytest.mark.parametrize(("answer", "left"), [("y\n", []), ("n\n", ["access"])])
def test_delete_does_what_is_answered(
    log: FolderLog, monkeypatch: pytest.MonkeyPatch, answer: str, left: list[str]
) -> None:
    log.create("access", SCHEMA)
    monkeypatch.setattr("penstock.cli.topic.is_terminal", lambda: True)
    run("topic", "delete", "access", given=answer, code=1 if left else 0)
    assert log.topics() == left
