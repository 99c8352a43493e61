"""Records that views send to Kafka are committed once, wherever the relay is killed."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from penstock import Pipeline
from penstock.errors import DefinitionError
from penstock.views.outbox import Delivered, Relay, enqueue, prepare, remembered_ids, waiting
from penstock.views.store import Store, open_store
from tests.conftest import ROOT
from tests.kafka.foreign import committed
from tests.services.kafka import KafkaCluster

if TYPE_CHECKING:
    from penstock.kafka.log import KafkaLog

OpenLog = Callable[..., "KafkaLog"]
RECORDS = 60
PARTITIONS = 3
USERS = 23
SCHEMA = "user string, n bigint"

# Carries the outbox to the log, and dies at a moment of the n-th append: with its records in a transaction that is not
# committed, or committed and not yet deleted from the outbox.
KILLED = """
import os, signal, sys
from penstock.kafka import writing
from penstock.kafka.partition import KafkaPartition
from penstock.log.log import Log
from penstock.views.outbox import Relay
from penstock.views.store import open_store

kafka, views, pipeline, moment, last = sys.argv[1:]
left = [int(last)]

def die_in_turn():
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)

if moment == "stored":
    store = writing.Batch.wait
    def wait(batch, brokers):
        found = store(batch, brokers)
        die_in_turn()
        return found
    writing.Batch.wait = wait
else:
    append = KafkaPartition.append
    def appended(partition, *arguments, **options):
        found = append(partition, *arguments, **options)
        die_in_turn()
        return found
    KafkaPartition.append = appended
Relay(open_store(views), Log(kafka), pipeline).deliver()
print("delivered")
"""


def put(store: Store, pipeline: str, topic: str, numbers: range) -> None:
    rows = pa.table({"user": [f"u{n % USERS}" for n in numbers], "n": pa.array(numbers, pa.int64())})
    with store.transaction(None) as transaction:
        enqueue(transaction.connection, pipeline, topic, rows)


@pytest.mark.services
@pytest.mark.parametrize("append", range(1, PARTITIONS + 1))
@pytest.mark.parametrize("moment", ["stored", "committed"])
def test_a_relay_killed_in_the_middle_stores_each_record_once(
    tmp_path: Path, kafka: KafkaCluster, open_log: OpenLog, name: str, moment: str, append: int
) -> None:
    log, views = open_log(), f"sqlite:{tmp_path / 'views.db'}"
    topic = log.create(name, SCHEMA, key="user", partitions=PARTITIONS)
    with open_store(views) as store:
        with store.transaction(None) as transaction:
            prepare(transaction.connection, "shop", remembered_ids("shop", [topic]))
        put(store, "shop", name, range(RECORDS))
        # A transaction holds two batches: the records, and how far the producer came.
        last = 2 * append - 1 if moment == "stored" else append
        command = [sys.executable, "-c", KILLED, log.url, views, "shop", moment, str(last)]
        killed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert (killed.returncode, killed.stdout) == (-9, ""), killed.stderr
        with store.snapshot() as snapshot:
            assert waiting(snapshot.connection) == {name: RECORDS}, "it died before it could delete anything"
        before = len(committed(kafka, name))
        put(store, "shop", name, range(RECORDS, RECORDS + 5))
        assert Relay(store, log, "shop").deliver() == Delivered(RECORDS + 5 - before, before)
    found = committed(kafka, name)
    assert Counter(each["n"] for each in found) == Counter(range(RECORDS + 5))
    for user in {each["user"] for each in found}:
        mine = [each["n"] for each in found if each["user"] == user]
        assert mine == sorted(mine)
    is_first_lost = moment == "stored" and append == 1
    assert (before == 0) == is_first_lost, "what was not committed was never there, and the rest always"


def test_two_views_cannot_share_a_changelog() -> None:
    """So the pipeline and the topic name one view, and its transactional id is its own."""
    app = Pipeline("shop")
    app.topic("sales", "customer string")
    app.view("one", key="customer", sql="SELECT DISTINCT customer FROM sales", changelog="c")
    with pytest.raises(DefinitionError, match="view 'one' writes it") as refused:
        app.view("two", key="customer", sql="SELECT DISTINCT customer FROM sales", changelog="c")
    assert refused.value.place is not None
    assert refused.value.place.file.endswith("test_outbox.py")
