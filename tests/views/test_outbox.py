"""What is in the outbox is stored in the log once each, wherever the relay is killed."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import Connection, delete, event, insert, select, update

from penstock.errors import RecordsRefused, UnknownTopic
from penstock.log.folder_log import FolderLog
from penstock.log.folder_partition import FolderPartition
from penstock.log.partition import Appended
from penstock.views import outbox
from penstock.views.outbox import Delivered, Relay, enqueue, prepare, remembered_ids, waiting
from penstock.views.store import Store, open_store
from penstock.views.system_tables import METADATA, OUTBOX_IDS, create_system_tables

DDL = "user string, n bigint"
USERS = 11
DAY_US = 24 * 3600 * 1_000_000


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def store(store: Store, root: Path) -> Store:
    """The database as a run finds it that has begun."""
    begin(store, root)
    return store


def renew(store: Store) -> None:
    """Empties the database, as if it had been deleted and made again."""
    with store.transaction(None) as transaction:
        METADATA.drop_all(transaction.connection)
        create_system_tables(transaction.connection)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with open_log(tmp_path / "log") as log:
        log.create("changes", DDL, key="user", partitions=3)
        log.create("plain", DDL, partitions=3)
    return tmp_path / "log"


def begin(store: Store, root: Path, *topics: str) -> None:
    """What a run does at its start."""
    with open_log(root) as log, store.transaction(None) as transaction:
        names = topics or ("changes", "plain")
        prepare(transaction.connection, "shop", remembered_ids("shop", map(log.topic, names)))


def open_log(root: Path, **settings: Any) -> FolderLog:
    return FolderLog(root, background=False, **settings)


def rows(numbers: range) -> pa.Table:
    return pa.table({"user": [f"u{n % USERS}" for n in numbers], "n": pa.array(numbers, pa.int64())})


def put(store: Store, numbers: range, topic: str = "changes") -> None:
    with store.transaction(None) as transaction:
        enqueue(transaction.connection, "shop", topic, rows(numbers))


def left(store: Store) -> dict[str, int]:
    with store.snapshot() as snapshot:
        return waiting(snapshot.connection)


def deliver(store: Store, root: Path) -> Delivered:
    with open_log(root) as log:
        return Relay(store, log, "shop").deliver()


def stored(root: Path, topic: str = "changes") -> list[int]:
    with open_log(root) as log:
        found: list[int] = log.topic(topic).slice().column("n").to_pylist()
        return found


def assert_once_and_in_order(root: Path, numbers: range, topic: str = "changes") -> None:
    found = stored(root, topic)
    assert Counter(found) == Counter(numbers)
    for user in range(USERS):
        mine = [n for n in found if n % USERS == user]
        assert topic == "plain" or mine == sorted(mine)


@pytest.mark.parametrize("topic", ["changes", "plain"])
def test_records_arrive_in_order_and_leave_the_outbox(store: Store, root: Path, topic: str) -> None:
    put(store, range(7), topic)
    put(store, range(0), topic)
    put(store, range(7, 100), topic)
    assert left(store) == {topic: 100}
    assert deliver(store, root) == Delivered(stored=100, duplicates=0)
    assert left(store) == {}
    assert deliver(store, root) == Delivered()
    put(store, range(100, 110), topic)
    assert deliver(store, root) == Delivered(stored=10)
    assert_once_and_in_order(root, range(110), topic)


def test_a_rolled_back_step_sends_nothing(store: Store, root: Path) -> None:
    put(store, range(3))
    with pytest.raises(Killed), store.transaction(None) as transaction:
        fail_after_enqueue(transaction.connection)
    put(store, range(3, 6))
    deliver(store, root)
    assert_once_and_in_order(root, range(6))


@pytest.mark.parametrize("topic", ["changes", "plain"])
@pytest.mark.parametrize("appends", [0, 1, 2, 3])
def test_killed_between_partitions_nothing_is_lost_or_stored_twice(
    store: Store, root: Path, topic: str, appends: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for start in range(0, 60, 10):
        put(store, range(start, start + 10), topic)
    with monkeypatch.context() as patched:
        kill_after(patched, appends)
        with pytest.raises(Killed):
            deliver(store, root)
    before = len(stored(root, topic))
    put(store, range(60, 70), topic)
    assert deliver(store, root) == Delivered(stored=70 - before, duplicates=before)
    assert_once_and_in_order(root, range(70), topic)


def test_sealing_and_retention_do_not_forget_what_was_stored(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, range(40))
    with monkeypatch.context() as patched:
        kill_after(patched, 3)
        with pytest.raises(Killed):
            deliver(store, root)
    later = time.time_ns() // 1000 + 30 * DAY_US
    with open_log(root, clock=lambda: later) as log:
        topic = log.topic("changes")
        for _ in range(2):  # The second time there is only an empty segment left that could remember.
            topic.seal(active=True)
        topic.alter(retention_age="1 hour")
        topic.retain(later + DAY_US)
        assert topic.start() == topic.end()
        put(store, range(40, 45))
        assert Relay(store, log, "shop").deliver() == Delivered(stored=5, duplicates=40)
    assert sorted(stored(root)) == list(range(40, 45))
    assert left(store) == {}


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_the_ids_of_another_database_are_above_those_of_the_old(
    store: Store, root: Path, url: str, is_forgotten: bool
) -> None:
    put(store, range(5))
    deliver(store, root)
    copy = ids(store)
    put(store, range(5, 1000))
    deliver(store, root)
    renew(store)
    if not is_forgotten:  # Restored from a copy that was made before.
        with store.transaction(None) as transaction:
            transaction.connection.execute(insert(OUTBOX_IDS), copy)
    with open_store(url) as another:  # As another process: this one knows the ids that it has given out.
        begin(another, root)
        put(another, range(1000, 1010))
        begin(another, root)
        assert deliver(another, root) == Delivered(stored=10)
    assert_once_and_in_order(root, range(1010))


def test_without_preparation_a_new_database_has_ids_above_those_of_the_old(store: Store, root: Path) -> None:
    renew(store)
    put(store, range(1000))
    deliver(store, root)
    renew(store)
    put(store, range(1000, 1010))
    assert deliver(store, root) == Delivered(stored=10)


def forget(store: Store) -> None:
    """What another server does that takes over without the last commits, or a copy of the database that is restored."""
    with store.transaction(None) as transaction:
        transaction.connection.execute(update(OUTBOX_IDS).values(last_id=0))


def test_ids_do_not_go_back_within_a_run_that_never_saw_the_server_change(store: Store, root: Path) -> None:
    put(store, range(10))
    deliver(store, root)
    forget(store)
    put(store, range(10, 20))
    assert deliver(store, root).duplicates == 0
    assert_once_and_in_order(root, range(20))


def test_a_rollback_in_another_process_uses_no_id_of_lost_commits(store: Store, root: Path, url: str) -> None:
    """It has no log to ask, so it prepares nothing."""
    put(store, range(10))
    deliver(store, root)
    forget(store)
    with open_store(url) as other:
        put(other, range(10, 20))
        put(other, range(20, 30))
    assert deliver(store, root).duplicates == 0
    begin(store, root)
    put(store, range(30, 40))
    assert deliver(store, root).duplicates == 0
    assert_once_and_in_order(root, range(40))


def ids(store: Store) -> list[dict[str, Any]]:
    with store.snapshot() as snapshot:
        return [dict(row) for row in snapshot.connection.execute(select(OUTBOX_IDS)).mappings()]


def test_two_relays_at_once_store_everything_once(store: Store, root: Path) -> None:
    for start in range(0, 300, 3):
        put(store, range(start, start + 3))
    relays = [threading.Thread(target=deliver, args=(store, root)) for _ in range(3)]
    for relay in relays:
        relay.start()
    for relay in relays:
        relay.join()
    assert left(store) == {}
    assert_once_and_in_order(root, range(300))


def test_a_topic_that_is_gone_holds_up_no_other(store: Store, root: Path) -> None:
    with open_log(root) as log:
        log.create("absent", DDL)
        begin(store, root, "absent")
        log.delete("absent")
    put(store, range(5), "absent")
    put(store, range(5))
    with pytest.raises(UnknownTopic):
        deliver(store, root)
    assert left(store) == {"absent": 5}
    assert_once_and_in_order(root, range(5))
    with open_log(root) as log:
        log.create("absent", DDL)
    assert deliver(store, root) == Delivered(stored=5)


def test_records_that_do_not_fit_stay_where_they_are(store: Store, root: Path) -> None:
    with store.transaction(None) as transaction:
        enqueue(transaction.connection, "shop", "changes", pa.table({"user": ["a"], "m": [1]}))
    with pytest.raises(RecordsRefused):
        deliver(store, root)
    assert left(store) == {"changes": 1}


def test_a_schema_that_grew_takes_older_entries(store: Store, root: Path) -> None:
    put(store, range(4))
    with open_log(root) as log:
        log.topic("changes").alter(schema=f"{DDL}, reason string")
    with store.transaction(None) as transaction:
        grown = rows(range(4, 8)).append_column("reason", pa.array(["why"] * 4))
        enqueue(transaction.connection, "shop", "changes", grown)
    assert deliver(store, root) == Delivered(stored=8)
    assert_once_and_in_order(root, range(8))


def test_much_is_cut_into_bounded_pieces(store: Store, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "ENTRY_BYTES_MAX", 1000)
    monkeypatch.setattr(outbox, "DELIVERY_BYTES_MAX", 4000)
    put(store, range(2000))
    assert deliver(store, root) == Delivered(stored=2000)
    assert_once_and_in_order(root, range(2000))


def test_kills_inside_the_first_deliveries_change_nothing(tmp_path: Path, root: Path) -> None:
    """A delivery of this relay has five moments: an append to each of three partitions, the delete and the commit."""
    url = f"sqlite:{tmp_path}/views.db"
    with open_store(url) as store:
        begin(store, root)
        for start in range(0, 200, 10):
            put(store, range(start, start + 10))
        waited = []
        for moment in (2, 4, 5, 7):
            with relay_process(url, root, moment) as relay:
                assert relay.wait() == -signal.SIGKILL
            waited.append(left(store)["changes"])
        assert waited[:3] == [200] * 3
        assert waited[3] < 200, "the last one was killed inside its second delivery"
        deliver(store, root)
    assert_once_and_in_order(root, range(200))


@pytest.mark.long
def test_kills_at_any_moment_change_nothing(tmp_path: Path, root: Path, dice: random.Random) -> None:
    url, total = f"sqlite:{tmp_path}/views.db", 2000
    with open_store(url) as store:
        begin(store, root)
        for start in range(0, total, 10):
            put(store, range(start, start + 10))
        waited = [total]
        for _ in range(20):  # Each relay delivers at least a little before it is killed.
            if not waited[-1]:
                break
            with relay_process(url, root) as relay:
                assert relay.stdout is not None
                assert relay.stdout.readline()
                time.sleep(dice.random() * 0.03)
                relay.kill()
            waited.append(left(store).get("changes", 0))
        assert waited == sorted(set(waited), reverse=True)
        deliver(store, root)
    assert_once_and_in_order(root, range(total))


@contextmanager
def relay_process(url: str, root: Path, moment: int = 0) -> Iterator[subprocess.Popen[bytes]]:
    """A relay in its own process, which kills itself at this moment (0: never). It is killed at the end."""
    words = [sys.executable, "-m", "tests.views.test_outbox", url, str(root), str(moment)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as relay:
        try:
            yield relay
        finally:
            relay.kill()


def kill_after(patched: pytest.MonkeyPatch, appends: int) -> None:
    """Ends the process before the next append, or where the appends are done before the delete."""
    append = FolderPartition.append
    done: list[FolderPartition] = []

    def counted(partition: FolderPartition, batch: pa.RecordBatch, **settings: Any) -> Appended:
        if len(done) == appends:
            raise Killed
        done.append(partition)
        return append(partition, batch, **settings)

    patched.setattr(FolderPartition, "append", counted)
    if appends == 3:
        patched.setattr(outbox, "delete", _killed)


def fail_after_enqueue(connection: Connection) -> None:
    enqueue(connection, "shop", "changes", rows(range(50, 60)))
    raise Killed


def _killed(*_: Any) -> Any:
    raise Killed


def _slow_relay(url: str, root: str, killed_at: str) -> None:
    """Delivers a little at a time, so that there are many moments to be killed in."""
    moments = itertools.count(1)

    def moment(*_: Any) -> None:
        if next(moments) == int(killed_at):
            os.kill(os.getpid(), signal.SIGKILL)

    def before(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any, **named: Any) -> Any:
            moment()
            return function(*given, **named)

        return called

    outbox.DELIVERY_BYTES_MAX = 500
    setattr(FolderPartition, "append", before(FolderPartition.append))  # noqa: B010
    setattr(outbox, "delete", before(delete))  # noqa: B010
    with open_store(url) as store, open_log(Path(root)) as log:
        event.listen(store.engine, "commit", moment)
        for _ in Relay(store, log, "shop")._deliver("changes"):
            print("one more", flush=True)


if __name__ == "__main__":
    _slow_relay(*sys.argv[1:])
