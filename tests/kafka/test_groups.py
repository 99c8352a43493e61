"""Consumers that share topics in Kafka: members join, leave, die and are late."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from penstock.consume.consumer import Consumer
from penstock.errors import MemberEvicted
from penstock.kafka.log import KafkaLog
from penstock.log.topic import Topic
from tests.conftest import ROOT
from tests.eventually import eventually
from tests.log.rows import SCHEMA, rows
from tests.services.kafka import KafkaCluster

pytestmark = pytest.mark.services
OpenLog = Callable[..., KafkaLog]

# The session is longer than Kafka's minimum of 6 seconds, so that a busy machine does not end it.
MEMBER = """
import sys
from penstock.log.log import Log
topic, start = sys.argv[2:]
consumer = Log(sys.argv[1]).consumer(topic, group=topic, start=start, session_timeout="10s", auto_commit=None)
while True:
    found = consumer.poll(0.25)
    print(sorted(n for records in found for n in records.batch.column("n").to_pylist()), flush=True)
"""


def polled(consumer: Consumer, count: int) -> list[int]:
    """The next `count` records."""
    found: list[int] = []

    def are_enough() -> bool:
        found.extend(n for records in consumer.poll(0.5) for n in records.batch.column("n").to_pylist())
        return len(found) >= count

    eventually(are_enough, explain=lambda: f"of {count} records, these came: {found}")
    return sorted(found)


def spread(topic: Topic, numbers: range) -> None:
    """Appends the same number of records to each partition."""
    for partition in topic.partitions:
        partition.append(rows(numbers[partition.number :: len(topic.partitions)]))


def test_members_share_partitions_and_hand_them_over(open_log: OpenLog, name: str) -> None:
    topic = open_log().create(name, SCHEMA, partitions=4)
    spread(topic, range(40))
    first = open_log().consumer(name, group=name)
    assert polled(first, 40) == list(range(40))
    with open_log().consumer(name, group=name) as second:

        def are_shared() -> bool:
            assert second.poll(0.1) == first.poll(0.1) == []
            return len(first.assignment) == len(second.assignment) == 2

        eventually(are_shared)
        spread(topic, range(40, 80))
        assert sorted(polled(first, 20) + polled(second, 20)) == list(range(40, 80)), "nothing is delivered twice"
    spread(topic, range(80, 120))
    assert polled(first, 40) == list(range(80, 120)), "the partitions of the other continue where it was"
    first.close()
    assert open_log().groups.status(name).lag == 0


def test_without_automatic_commits_only_commit_counts(open_log: OpenLog, name: str) -> None:
    topic = open_log().create(name, SCHEMA)
    spread(topic, range(10))
    with open_log().consumer(name, group=name, auto_commit=None, max_rows=5) as consumer:
        assert polled(consumer, 5) == list(range(5))
        consumer.commit()
        assert polled(consumer, 5) == list(range(5, 10))
    with open_log().consumer(name, group=name, auto_commit=None) as again:
        assert polled(again, 5) == list(range(5, 10)), "records polled after the commit are delivered again"


def test_a_member_that_takes_too_long_is_evicted_and_joins_again(open_log: OpenLog, name: str) -> None:
    topic = open_log().create(name, SCHEMA)
    spread(topic, range(10))
    now = 1000.0
    slow = open_log().consumer(
        name, group=name, auto_commit=None, processing_timeout="500ms", max_rows=5, monotonic=lambda: now
    )
    with slow:
        assert polled(slow, 5) == list(range(5))
        slow.commit()
        assert polled(slow, 5) == list(range(5, 10))
        now += 0.6
        eventually(lambda: slow.stats.evictions == 1)
        with open_log().consumer(name, group=name) as other:
            assert polled(other, 5) == list(range(5, 10)), "another has its partition by now"
            for _ in range(2):
                with pytest.raises(MemberEvicted, match=r"it did not poll for 0\.5 seconds"):
                    slow.commit()
        spread(topic, range(10, 15))
        assert polled(slow, 5) == list(range(10, 15))
        slow.commit()
    assert open_log().groups.status(name).lag == 0


def test_a_pattern_finds_a_later_topic_but_not_its_dead_letters(open_log: OpenLog, name: str) -> None:
    log = open_log()
    with open_log().consumer(f"{name}*", group=name) as consumer:
        assert consumer.poll(0.5) == []
        spread(log.create(f"{name}.one", SCHEMA), range(5))
        spread(log.create(f"{name}.dead", SCHEMA), range(100, 105))
        assert polled(consumer, 5) == list(range(5))
        spread(log.create(f"{name}.two", SCHEMA), range(5, 10))
        assert polled(consumer, 5) == list(range(5, 10))
        assert {topic for topic, _ in consumer.assignment} == {f"{name}.one", f"{name}.two"}


def test_uncommitted_records_of_a_killed_and_a_frozen_member_are_redelivered(
    kafka: KafkaCluster, open_log: OpenLog, name: str
) -> None:
    log = open_log()
    topic = log.create(name, SCHEMA, partitions=2)
    with member(kafka, name) as killed, member(kafka, name) as frozen:
        eventually(lambda: name in log.groups.names() and owned(log, name) == [1, 1])
        spread(topic, range(10))
        assert sorted(read(killed) + read(frozen)) == list(range(10))
        killed.kill()
        os.kill(frozen.pid, signal.SIGSTOP)
        with open_log().consumer(name, group=name) as other:
            assert polled(other, 10) == list(range(10))
            spread(topic, range(10, 20))
            assert polled(other, 10) == list(range(10, 20))
            os.kill(frozen.pid, signal.SIGCONT)
            assert frozen.stdout is not None
            printed = [json.loads(frozen.stdout.readline()) for _ in range(4)]
            assert [n for numbers in printed for n in numbers if n >= 10] == [], "its partition has another owner"


def test_a_group_that_began_at_the_end_misses_nothing_when_its_member_is_killed(
    kafka: KafkaCluster, open_log: OpenLog, name: str
) -> None:
    log = open_log()
    topic = log.create(name, SCHEMA)
    spread(topic, range(10))
    with member(kafka, name, "latest") as killed:
        eventually(lambda: name in log.groups.names() and committed(log, name) == [10])
        assert killed.stdout is not None
        assert [json.loads(killed.stdout.readline()) for _ in range(4)] == [[]] * 4
        killed.kill()
    spread(topic, range(10, 20))
    with open_log().consumer(name, group=name, start="latest") as other:
        assert polled(other, 10) == list(range(10, 20))


def test_a_group_that_began_at_the_end_misses_nothing_between_two_members(open_log: OpenLog, name: str) -> None:
    topic = open_log().create(name, SCHEMA)
    spread(topic, range(10))
    with open_log().consumer(name, group=name, start="latest") as first:
        eventually(lambda: first.poll(0.1) == [] and len(first.assignment) == 1)
    spread(topic, range(10, 20))
    with open_log().consumer(name, group=name, start="latest") as second:
        assert polled(second, 10) == list(range(10, 20))


def owned(log: KafkaLog, group: str) -> list[int]:
    return [each.partitions for each in log.groups.status(group).members]


def committed(log: KafkaLog, group: str) -> list[int | None]:
    return [each.committed for each in log.groups.status(group).partitions]


def read(member: subprocess.Popen[str]) -> list[int]:
    """The next records of a member."""
    assert member.stdout is not None
    while not (found := json.loads(member.stdout.readline())):
        continue
    return [int(n) for n in found]


@contextmanager
def member(cluster: KafkaCluster, topic: str, start: str = "earliest") -> Iterator[subprocess.Popen[str]]:
    """A process that is a member of the group of the topic's name, and commits nothing."""
    command = [sys.executable, "-c", MEMBER, f"kafka://{cluster.bootstrap}", topic, start]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
