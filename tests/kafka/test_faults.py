"""Brokers and processes that die or freeze: acknowledged records are stored once, in order, and read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
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
from tests.eventually import LIMIT_SECONDS, eventually
from tests.kafka.foreign import begun
from tests.log.rows import SCHEMA, rows
from tests.services.kafka import KafkaCluster

pytestmark = pytest.mark.services
OpenLog = Callable[..., KafkaLog]
TEST_SECONDS = 600
"""pytest fails a test that takes longer than this."""

# Stores records of a named producer, and pauses when its transaction has all of them but is not committed.
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
url, topic, transaction_ms = sys.argv[1:]
partition = Log(url, conf={"transaction.timeout.ms": transaction_ms}).topic(topic).partitions[0]
done = partition.append(rows(range(10)), producer=named_producer(topic), sequences=np.arange(10))
print("appended", done.count, done.duplicates, flush=True)
"""


def numbers(topic: Topic) -> list[int]:
    return topic.slice().column("n").to_pylist()  # type: ignore[no-any-return]


def leader_of(cluster: KafkaCluster, topic: str) -> int:
    admin = AdminClient(cluster.client())
    return int(admin.list_topics(topic, timeout=LIMIT_SECONDS).topics[topic].partitions[0].leader)


def is_answered(topic: Topic) -> bool:
    try:
        return bool(topic.end())
    except KafkaUnavailable:
        return False


def is_appended(topic: Topic, number: int) -> bool:
    try:
        return topic.partitions[0].append(rows([number])).count == 1
    except KafkaUnavailable:
        return False


@contextmanager
def gone(cluster: KafkaCluster, broker: int) -> Iterator[None]:
    """A broker is killed meanwhile, and restarted afterwards."""
    cluster.kill(broker)
    try:
        yield
    finally:
        cluster.restart(broker)


@contextmanager
def half_way(cluster: KafkaCluster, topic: str, *, transaction_ms: int = 30_000) -> Iterator[subprocess.Popen[str]]:
    """A process that has records of a named producer in a transaction it has not committed."""
    command = [sys.executable, "-c", HALF_WAY, f"kafka://{cluster.bootstrap}", topic, str(transaction_ms)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "stored\n"
            yield process
        finally:
            process.kill()


# --- brokers ---


def test_records_are_stored_once_in_order_when_the_leader_is_killed(
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
                producer.send(rows(batch)).wait(LIMIT_SECONDS)
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
            """Reads until both writers have stored that many more records."""
            wanted = {key: value + count for key, value in acknowledged.items()}

            def is_reached() -> bool:
                assert failed == []
                read_on()
                return all(acknowledged[key] >= value for key, value in wanted.items())

            eventually(is_reached, explain=lambda: f"{acknowledged}, wanted {wanted}")

        try:
            follow(20)
            with gone(kafka3, leader_of(kafka3, name)):
                follow(50)
                assert numbers(log.topic(name))[:5] == list(range(5)), "slices are read meanwhile"
            follow(20)
        finally:
            is_over.set()
            for thread in threads:
                thread.join()
        assert failed == []
        expected = [list(range(each)) for each in acknowledged.values()]
        assert [numbers(plain), numbers(named)] == expected

        def is_everything_read() -> bool:
            read_on()
            return [each[-1:] for each in seen.values()] == [each[-1:] for each in expected]

        eventually(is_everything_read, explain=lambda: f"the group got {seen}, expected {expected}")
        # A group whose coordinator died may resume at its last commit: some records come twice, none is missed.
        for got, sent in zip(seen.values(), expected, strict=True):
            assert [*dict.fromkeys(got)] == sent
            assert all(later <= earlier + 1 for earlier, later in pairwise(got)), got


def test_appends_without_any_broker_end_at_their_timeouts_and_work_again_later(
    kafka3: KafkaCluster, open_log3: OpenLog, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = open_log3().create(name, SCHEMA)
    producer = named_producer(name)
    created.partitions[0].append(rows([0]))
    created.partitions[0].append(rows([1]), producer=producer, sequences=np.array([1]))
    for default in ("DELIVERY_MS", "TRANSACTION_MS"):  # A wait of this length would outlast the test.
        monkeypatch.setattr(f"penstock.kafka.connection.{default}", 2 * TEST_SECONDS * 1000)
    hasty = open_log3(delivery_timeout_ms="3000", socket_timeout_ms="3000", transaction_timeout_ms="10000")
    topic = hasty.topic(name)
    [partition] = topic.partitions
    for each in kafka3.brokers:
        kafka3.kill(each)
    try:
        for attempt in (
            lambda: partition.append(rows([2])),
            lambda: partition.append(rows([3]), producer=producer, sequences=np.array([3])),
            topic.slice,
            topic.refresh,
        ):
            with pytest.raises(KafkaUnavailable):
                attempt()
    finally:
        kafka3.start()
    monkeypatch.undo()
    eventually(lambda: is_answered(topic))
    patient = open_log3().topic(name).partitions[0]  # The brokers still have to abort the pending transaction.
    assert patient.append(rows([3]), producer=producer, sequences=np.array([3])).count == 1
    eventually(lambda: is_appended(topic, 4))
    found = numbers(topic)
    assert sorted({*found} - {2}) == [0, 1, 3, 4], "all acknowledged records are there, others may be"
    # An append of the hasty client that failed may have been stored, and was repeated.
    assert all(found.count(each) == 1 for each in {*found} - {4})


# --- processes ---


def test_pending_records_of_a_frozen_process_are_stored_once(kafka: KafkaCluster, open_log: OpenLog, name: str) -> None:
    topic = open_log().create(name, SCHEMA)
    with half_way(kafka, name) as frozen:
        os.kill(frozen.pid, signal.SIGSTOP)
        done = topic.partitions[0].append(rows(range(12)), producer=named_producer(name), sequences=np.arange(12))
        assert (done.count, done.duplicates) == (12, 0)
        os.kill(frozen.pid, signal.SIGCONT)
        printed, _ = frozen.communicate("\n" * 9, timeout=LIMIT_SECONDS)
        assert printed.splitlines()[-1] == "appended 0 10", "it finds that another process has stored its records"
    assert numbers(topic) == list(range(12))
    assert topic.partitions[0].last_sequence(named_producer(name)) == 11


def test_pending_records_of_a_killed_process_are_never_read_and_block_no_writer(
    kafka: KafkaCluster, open_log: OpenLog, name: str
) -> None:
    topic = open_log().create(name, SCHEMA)
    # As long as Kafka allows: the writer has to abort this transaction, because it outlives the test.
    with half_way(kafka, name, transaction_ms=900_000) as killed:
        killed.kill()
    assert (numbers(topic), topic.end()) == ([], {0: 0})
    topic.partitions[0].append(rows([7]), producer=named_producer(name), sequences=np.array([0]))
    assert numbers(topic) == [7]


def test_a_pending_transaction_of_another_producer_hides_no_stored_sequence(
    kafka: KafkaCluster, open_log: OpenLog, name: str
) -> None:
    """Many producers keep their sequences in one partition, and a pending transaction hides all that follow it."""
    log = open_log()
    topic = log.create(name, SCHEMA)
    producer = named_producer(name)
    book = log.sequences.entry(producer, "", (0, 0))  # type: ignore[arg-type]
    topic.partitions[0].append(rows([0]), producer=producer, sequences=np.array([0]))
    other = begun(kafka, book[0], 0)
    other.produce(book[0], b"[0, 0]", b"another", book[1])
    assert other.flush(LIMIT_SECONDS) == 0
    topic.partitions[0].append(rows([1, 2]), producer=producer, sequences=np.array([1, 2]))
    threading.Timer(1, other.abort_transaction, [LIMIT_SECONDS]).start()
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
    eventually(lambda: len(numbers(topic)) == 20)
    assert numbers(topic) == list(range(20))
