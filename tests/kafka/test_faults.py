"""Brokers and processes that die or freeze: what is acknowledged is stored once, in order, and read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import pytest
from confluent_kafka.admin import AdminClient

from penstock.errors import KafkaUnavailable, PenstockError
from penstock.kafka.log import KafkaLog
from penstock.log.producers import named_producer
from penstock.log.topic import Topic
from tests.conftest import ROOT
from tests.kafka.foreign import begun, wait_until
from tests.log.rows import SCHEMA, rows
from tests.services.kafka import KafkaCluster

pytestmark = pytest.mark.services
OpenLog = Callable[..., KafkaLog]
WITHIN_SECONDS = 60

# Stores records under a name, and stops where the transaction has all of them and is not committed.
HALF_WAY = """
import sys
import numpy as np
from penstock.kafka.writing import Batch
from penstock.log.log import Log
from penstock.log.producers import named_producer
from tests.log.rows import rows

wait = Batch.wait
def wait_and_tell(self, brokers):
    found = wait(self, brokers)
    print("stored", flush=True)
    sys.stdin.readline()
    return found
Batch.wait = wait_and_tell
partition = Log(sys.argv[1]).topic(sys.argv[2]).partitions[0]
done = partition.append(rows(range(10)), producer=named_producer(sys.argv[2]), sequences=np.arange(10))
print("appended", done.count, done.duplicates, flush=True)
"""


def numbers(topic: Topic) -> list[int]:
    return topic.slice().column("n").to_pylist()  # type: ignore[no-any-return]


def leader_of(cluster: KafkaCluster, topic: str) -> int:
    admin = AdminClient(cluster.client())
    return int(admin.list_topics(topic, timeout=WITHIN_SECONDS).topics[topic].partitions[0].leader)


def is_answered(topic: Topic) -> bool:
    try:
        return bool(topic.end())
    except KafkaUnavailable:
        return False


@contextmanager
def gone(cluster: KafkaCluster, broker: int) -> Iterator[None]:
    """A broker was killed, and is back afterwards."""
    cluster.kill(broker)
    try:
        yield
    finally:
        cluster.restart(broker)


@contextmanager
def half_way(cluster: KafkaCluster, topic: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has records of a named producer in a transaction which it has not committed."""
    command = [sys.executable, "-c", HALF_WAY, f"kafka://{cluster.bootstrap}", topic]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "stored\n"
            yield process
        finally:
            process.kill()


# --- brokers ---


def test_records_are_stored_once_in_order_though_the_leader_is_killed(
    kafka3: KafkaCluster, open_log3: OpenLog, name: str
) -> None:
    log = open_log3()
    plain, named = log.create(name, SCHEMA), log.create(f"{name}.named", SCHEMA)
    acknowledged: dict[str, int] = {"plain": 0, "named": 0}
    is_over = threading.Event()
    failed: list[BaseException] = []

    def send_plain() -> None:
        with log.producer(name) as producer:
            while not is_over.is_set():
                batch = range(acknowledged["plain"], acknowledged["plain"] + 5)
                producer.send(rows(batch)).wait(WITHIN_SECONDS)
                acknowledged["plain"] += 5

    def append_named() -> None:
        while not is_over.is_set():
            batch = range(acknowledged["named"], acknowledged["named"] + 5)
            named.partitions[0].append(rows(batch), producer=named_producer(name), sequences=np.array(batch))
            acknowledged["named"] += 5

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(each,)) for each in (send_plain, append_named)]
    with open_log3().consumer(f"{name}*", group=name) as consumer:
        for thread in threads:
            thread.start()
        seen: dict[str, list[int]] = {name: [], f"{name}.named": []}

        def read_on() -> None:
            for records in consumer.poll(0.2):
                seen[records.topic] += records.batch.column("n").to_pylist()

        def follow(count: int) -> None:
            """Until both writers and the reader got so much further."""
            wanted = {key: value + count for key, value in acknowledged.items()}
            deadline = time.monotonic() + WITHIN_SECONDS
            while not failed and any(acknowledged[key] < value for key, value in wanted.items()):
                read_on()
                assert time.monotonic() < deadline, f"{acknowledged}, wanted {wanted}"

        follow(20)
        with gone(kafka3, leader_of(kafka3, name)):
            follow(50)
            assert numbers(log.topic(name))[:5] == list(range(5)), "slices are read meanwhile"
        follow(20)
        is_over.set()
        for thread in threads:
            thread.join()
        assert failed == []
        expected = [list(range(each)) for each in acknowledged.values()]
        assert [numbers(plain), numbers(named)] == expected
        deadline = time.monotonic() + WITHIN_SECONDS
        while [each[-1:] for each in seen.values()] != [each[-1:] for each in expected]:
            read_on()
            assert time.monotonic() < deadline, "the group did not get everything"
        # A group whose coordinator died may begin again at what it had committed: then some comes twice, nothing never.
        for got, sent in zip(seen.values(), expected, strict=True):
            assert [*dict.fromkeys(got)] == sent
            assert all(later <= earlier + 1 for earlier, later in pairwise(got)), got


def test_an_append_without_any_broker_fails_in_time_and_works_again_later(
    kafka3: KafkaCluster, open_log3: OpenLog, name: str
) -> None:
    log = open_log3(delivery_timeout_ms="3000", socket_timeout_ms="3000", transaction_timeout_ms="10000")
    topic = log.create(name, SCHEMA)
    [partition] = topic.partitions
    producer = named_producer(name)
    partition.append(rows([0]))
    partition.append(rows([1]), producer=producer, sequences=np.array([1]))
    for each in kafka3.brokers:
        kafka3.kill(each)
    try:
        for attempt in (
            lambda: partition.append(rows([2])),
            lambda: partition.append(rows([3]), producer=producer, sequences=np.array([3])),
            topic.slice,
            topic.refresh,
        ):
            began = time.monotonic()
            with pytest.raises(KafkaUnavailable) as error:
                attempt()
            assert time.monotonic() - began < 20, error.value
    finally:
        kafka3.start()
    wait_until(lambda: is_answered(topic))
    patient = open_log3().topic(name).partitions[0]  # The brokers still have to give up what was under way.
    assert patient.append(rows([3]), producer=producer, sequences=np.array([3])).count == 1
    partition.append(rows([4]))
    found = numbers(topic)
    assert sorted({*found} - {2}) == [0, 1, 3, 4], "what was not acknowledged may be there, the rest must"
    assert len(found) == len({*found})


# --- processes ---


def test_what_a_frozen_process_had_under_way_is_stored_once(kafka: KafkaCluster, open_log: OpenLog, name: str) -> None:
    topic = open_log().create(name, SCHEMA)
    with half_way(kafka, name) as frozen:
        os.kill(frozen.pid, signal.SIGSTOP)
        done = topic.partitions[0].append(rows(range(12)), producer=named_producer(name), sequences=np.arange(12))
        assert (done.count, done.duplicates) == (12, 0)
        os.kill(frozen.pid, signal.SIGCONT)
        said, _ = frozen.communicate("\n" * 9, timeout=WITHIN_SECONDS)
        assert said.splitlines()[-1] == "appended 0 10", "it finds that another one has stored its records"
    assert numbers(topic) == list(range(12))
    assert topic.partitions[0].last_sequence(named_producer(name)) == 11


def test_what_a_killed_process_had_under_way_is_never_read_and_holds_up_nobody(
    kafka: KafkaCluster, open_log: OpenLog, name: str
) -> None:
    topic = open_log().create(name, SCHEMA)
    with half_way(kafka, name) as killed:
        killed.kill()
    assert (numbers(topic), topic.end()) == ([], {0: 0})
    began = time.monotonic()
    topic.partitions[0].append(rows([7]), producer=named_producer(name), sequences=np.array([0]))
    assert time.monotonic() - began < 10
    assert numbers(topic) == [7]


def test_a_transaction_of_another_hides_nothing_that_a_producer_has_stored(
    kafka: KafkaCluster, open_log: OpenLog, name: str
) -> None:
    """The sequences of many producers are in one partition, and one that is undecided hides all that follow."""
    log = open_log()
    topic = log.create(name, SCHEMA)
    producer = named_producer(name)
    book = log.sequences.entry(producer, "", (0, 0))  # type: ignore[arg-type]
    topic.partitions[0].append(rows([0]), producer=producer, sequences=np.array([0]))
    other = begun(kafka, book[0], 0)
    other.produce(book[0], b"[0, 0]", b"another", book[1])
    assert other.flush(WITHIN_SECONDS) == 0
    topic.partitions[0].append(rows([1, 2]), producer=producer, sequences=np.array([1, 2]))
    threading.Timer(2, other.abort_transaction, [WITHIN_SECONDS]).start()
    repeated = open_log().topic(name).partitions[0]
    done = repeated.append(rows([1, 2, 3]), producer=producer, sequences=np.array([1, 2, 3]))
    assert (done.count, done.duplicates) == (1, 2)
    assert numbers(topic) == [0, 1, 2, 3]


def test_two_processes_with_one_name_store_each_sequence_once(open_log: OpenLog, name: str) -> None:
    topic = open_log().create(name, SCHEMA)
    failed: list[PenstockError] = []

    def store() -> None:
        partition = open_log().topic(name).partitions[0]
        try:
            for start in range(0, 20, 5):
                batch = range(start, start + 5)
                partition.append(rows(batch), producer=named_producer(name), sequences=np.array(batch))
        except PenstockError as error:
            failed.append(error)

    threads = [threading.Thread(target=store) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    wait_until(lambda: len(numbers(topic)) == 20)
    assert numbers(topic) == list(range(20))
