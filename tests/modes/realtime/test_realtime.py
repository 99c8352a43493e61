"""Real-time mode: the same records as in steps, none lost by a kill, and a clear error for what cannot run so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock.kafka.connection import RECORD_BYTES_MAX
from penstock.kafka.log import KafkaLog
from penstock.kafka.values import ARRIVED_HEADER
from penstock.modes.topics import make_topics
from penstock.pipeline.loading import load_pipeline
from penstock.produce.dead_letters import RAW_BYTES_MAX
from tests.eventually import eventually
from tests.modes.realtime.at_a_time import LIMIT_SECONDS, Place, ended, records
from tests.services.kafka import MECHANISM, KafkaCluster

pytestmark = [pytest.mark.services, pytest.mark.spark]

START_US = 1_767_225_600_000_000
SECOND = 1_000_000
GOOD = {
    "time": "2026-01-01T00:00:00.25Z", "user": "u0", "n": 4, "ratio": 1e-7, "price": "12.50", "tags": ["a", "b\"é"],
    "raw": "aGk=", "value": 5, "a`b": 6, "rate": "1E-8",
    "place": {"x": 0.1, "day": "2026-02-28"}, "seen": {"k": 5}, "local": "2026-01-01 10:11:12",
}  # fmt: skip
BAD = (
    b"no JSON", b'{"user": "u0", "n": 1.5}', b'{"usr": "u0"}', b"[1]", b'{"n": 1}x', b'{"user": "\xff"}',
    b"x" * (7 << 20),
)  # fmt: skip


@pytest.fixture
def log(kafka: KafkaCluster) -> Iterator[KafkaLog]:
    with KafkaLog(f"kafka://{kafka.bootstrap}") as opened:
        yield opened


def send(kafka: KafkaCluster, topic: str, *values: bytes | dict[str, Any], arrived_us: int | None = None) -> None:
    """Stores records as anybody may, without Penstock."""
    producer = Producer({**kafka.client(), "message.max.bytes": RECORD_BYTES_MAX})
    headers: Any = [] if arrived_us is None else [(ARRIVED_HEADER, str(arrived_us).encode())]
    for value in values:
        producer.produce(topic, value if isinstance(value, bytes) else json.dumps(value).encode(), headers=headers)
    assert producer.flush(LIMIT_SECONDS) == 0


def append(log: KafkaLog, topic: str, numbers: range) -> None:
    """Stores events as Penstock's producers do, in transactions, which leave gaps between offsets."""
    rows = [{"user": f"u{each % 3}", "n": each, "tags": ["x"] * (each % 3)} for each in numbers]
    # A record without a time is never late; the others are, by months.
    times = [None if each % 4 == 0 else "2026-01-01T00:00:00.5Z" for each in numbers]
    with log.producer(topic, name=f"test-{numbers.start}") as producer:
        for sequence, (row, at) in enumerate(zip(rows, times, strict=True)):
            producer.send({**row, "time": at}, sequence=sequence)


def numbers_in(log: KafkaLog, topic: str) -> list[int]:
    return [row["after"]["n"] for row in records(log, topic)]


def test_records_are_those_of_steps(tmp_path: Path, kafka: KafkaCluster, connector: str, log: KafkaLog) -> None:
    for each in ("live", "steps"):
        (tmp_path / each).mkdir()
    topic = f"c-{tmp_path.name}"[:40].lower().replace("_", "-")
    bound = topic.replace("-", "_")
    live = Place(tmp_path / "live", kafka, connector, name=f"live-{topic}", topic=topic, bound=bound)
    steps = Place(tmp_path / "steps", kafka, connector, name=f"steps-{topic}", topic=topic, bound=bound)
    make_topics(load_pipeline(str(live.app)), log)
    append(log, topic, range(20))
    send(kafka, topic, GOOD, {**GOOD, "price": None, "ratio": 5, "tags": []}, *BAD[:3])
    run = live.start()
    try:
        eventually(lambda: len(records(log, f"live-{topic}.all")) == 22)
        append(log, topic, range(20, 30))
        send(kafka, topic, *BAD[3:])
        send(kafka, topic, {**GOOD, "time": "2026-01-01T00:00:00Z"}, arrived_us=START_US + 700 * SECOND)
        send(kafka, topic, {**GOOD, "n": 6}, arrived_us=START_US + 30 * SECOND)
        eventually(lambda: len(records(log, f"live-{topic}.all")) == 34)
        eventually(lambda: len(records(log, f"{topic}.dead")) == len(BAD))
        told = ended(run)
    finally:
        run.kill()
    assert told[0]["queries"] == ["every", "some", f"{topic}.dead"]
    assert told[-1]["event"] == "stopped"
    done = steps.run("run", str(steps.app), "--once")
    assert done.returncode == 0, done.stderr
    for view in ("all", "some"):
        expected = records(log, f"steps-{topic}.{view}")
        assert records(log, f"live-{topic}.{view}") == expected
        assert len(expected) > 5
    late = [row["after"]["was_late"] for row in records(log, f"live-{topic}.all") if row["after"]["came"] is not None]
    assert True in late
    assert False in late
    # Steps have read the same records, and found that they were buried.
    dead = records(log, f"{topic}.dead")
    assert sorted(row["raw"] for row in dead) == sorted(each[:RAW_BYTES_MAX] for each in BAD)
    assert {row["topic"] for row in dead} == {topic}
    assert all(row["reason"].startswith(("expected", "nothing is named")) for row in dead)
    assert {row["column"] for row in dead} == {None, "n", "usr"}
    # Every record names its own place.
    offsets = [json.loads(row["offsets"]) for row in log.topic(f"live-{topic}.all").slice().to_pylist()]
    places = {(number, end) for each in offsets for number, end in each["offsets"][topic].items()}
    assert len(places) == 34
    assert {each["clock_us"] for each in offsets} >= {START_US + 700 * SECOND, START_US + 30 * SECOND}
    # Neither way goes on where the other one was.
    again = live.run("run", str(live.app), "--once")
    assert again.returncode == 1
    assert "was run record at a time, and cannot go on in steps" in again.stderr
    other = steps.run("run", str(steps.app), "--trigger", "realtime")
    assert other.returncode == 1
    assert "was run in steps, and cannot go on record at a time" in other.stderr
    assert f'changelog="steps-{topic}.all.2"' in other.stderr


def test_a_kill_loses_nothing(tmp_path: Path, kafka: KafkaCluster, connector: str, log: KafkaLog) -> None:
    topic = f"k-{tmp_path.name}"[:40].lower().replace("_", "-")
    bound = topic.replace("-", "_")
    folder = tmp_path / "späte Läufe"
    folder.mkdir()
    place = Place(folder, kafka, connector, name=f"live-{topic}", topic=topic, bound=bound)
    make_topics(load_pipeline(str(place.app)), log)
    changes = f"live-{topic}.all"
    first = place.start(0)
    append(log, topic, range(50))
    eventually(lambda: len(numbers_in(log, changes)) >= 20)
    append(log, topic, range(50, 100))
    first.kill()
    append(log, topic, range(100, 150))
    second = place.start(1)
    try:
        eventually(lambda: {*numbers_in(log, changes)} == {*range(150)})
        ended(second)
    finally:
        second.kill()
    # A third one has nothing to repeat but what came while the second one was stopped.
    before = len(numbers_in(log, changes))
    third = place.start(2)
    try:
        append(log, topic, range(150, 160))
        eventually(lambda: {*numbers_in(log, changes)} == {*range(160)})
        ended(third)
    finally:
        third.kill()
    assert len(numbers_in(log, changes)) == before + 10
    places = [row["offsets"] for row in log.topic(changes).slice().to_pylist()]
    assert len({*places}) == 160
    # Without its progress it would write everything again.
    (folder / "data" / "checkpoints").rename(folder / "elsewhere")
    said = place.run("run", str(place.app), "--trigger", "realtime")
    assert said.returncode == 1
    assert f"no such folder under spark.checkpoints = file:{folder / 'data' / 'checkpoints'}" in said.stderr
    assert len(numbers_in(log, changes)) == before + 10


SMALL = """\
from penstock import Pipeline

app = Pipeline("{name}")
app.topic("{topic}", "n int")
app.view("parts", sql="SELECT 100 / n AS part FROM {bound}", changelog="{name}.parts")
"""


def test_it_speaks_with_secured_brokers_and_says_why_spark_ended_it(
    tmp_path: Path, kafka: KafkaCluster, connector: str, log: KafkaLog
) -> None:
    topic = f"s-{tmp_path.name}"[:40].lower().replace("_", "-")
    names = {"name": f"live-{topic}", "topic": topic, "bound": topic.replace("-", "_")}
    place = Place(tmp_path, kafka, connector, app=SMALL, **names)
    settings = tmp_path / "penstock.toml"
    secured = (
        f'[log]\nurl = "kafka://{kafka.secured_bootstrap}"\nusername = "{kafka.username}"\n'
        f'password = "{kafka.password}"\nca_file = "{kafka.ca_file}"\nconf = {{ "sasl.mechanism" = "{MECHANISM}" }}\n'
    )
    settings.write_text(secured + settings.read_text()[settings.read_text().index("[spark]") :])
    settings.chmod(0o600)
    make_topics(load_pipeline(str(place.app)), log)
    send(kafka, topic, {"n": 4})
    run = place.start()
    try:
        eventually(lambda: [row["after"]["part"] for row in records(log, f"live-{topic}.parts")] == [25.0])
        send(kafka, topic, {"n": 0})
        eventually(lambda: not run.is_running)
    finally:
        run.kill()
    assert run.code == 1
    assert "run: Spark ended view 'parts'" in run.said()
    assert "DIVIDE_BY_ZERO" in run.said()
    assert kafka.password not in run.said()


def test_a_topic_that_grows_ends_the_run_and_the_next_one_reads_on(
    tmp_path: Path, kafka: KafkaCluster, connector: str, log: KafkaLog
) -> None:
    topic = f"g-{tmp_path.name}"[:40].lower().replace("_", "-")
    names = {"name": f"live-{topic}", "topic": topic, "bound": topic.replace("-", "_")}
    place = Place(tmp_path, kafka, connector, app=SMALL, **names)
    make_topics(load_pipeline(str(place.app)), log)
    run = place.start(0)
    try:
        # Before a record has the new column: those of others do not say that they do.
        log.topic(topic).alter(schema="n int, m int")
        eventually(lambda: not run.is_running)
    finally:
        run.kill()
    assert run.code == 1
    assert f"topic {topic!r} has grown" in run.said()
    send(kafka, topic, {"n": 5, "m": 1})
    place.app.write_text(place.app.read_text().replace('"n int"', '"n int, m int"'))
    again = place.start(1)
    try:
        eventually(lambda: [row["after"]["part"] for row in records(log, f"live-{topic}.parts")] == [20.0])
        ended(again)
    finally:
        again.kill()
    assert records(log, f"{topic}.dead") == []
