"""Views in PostgreSQL: the same rows as anywhere, also where the server goes away in the middle."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock import Pipeline
from penstock.errors import StoreUnavailable
from penstock.log.folder_topic import FolderTopic
from penstock.modes import patience
from penstock.modes.running import RunningSet, StepReport
from penstock.modes.stream import run_stream
from tests.eventually import eventually
from tests.modes.agreement.test_modes_agree import orders, shop
from tests.modes.harness import Lab, rows_of
from tests.postgresql import OwnServer

pytestmark = [pytest.mark.spark, pytest.mark.system]

OPEN_TRANSACTIONS = """
SELECT state, query FROM pg_stat_activity
WHERE datname = current_database() AND state LIKE 'idle in transaction%'
"""


@pytest.mark.parametrize("max_rows", [60, pytest.param(25, marks=pytest.mark.long)])
def test_every_mode_gives_the_rows_of_a_stream_in_sqlite(
    tmp_path: Path, spark: SparkSession, own_postgresql: OwnServer, max_rows: int
) -> None:
    lab = Lab(tmp_path, shop(), spark, own_postgresql.new_database)
    sold, paid = orders(60)
    for start in range(0, 60, 20):
        lab.append("orders", sold[start : start + 20])
        lab.append("payments", paid[start : start + 20])
    with lab.engine("expected") as (engine, store):
        run_stream(engine, once=True)
        expected = rows_of(engine, store)
    assert lab.batch() == expected
    assert lab.stream(25) == expected
    assert lab.as_lambda(max_rows) == expected
    assert lab.as_kappa(max_rows) == expected


def counts() -> Pipeline:
    app = Pipeline("counts")
    app.topic("events", "name string, amount bigint", partitions=2)

    @app.view(key="name", changelog="totals.changes")
    def totals(events: DataFrame) -> DataFrame:
        return events.groupBy("name").agg(sf.count("*").alias("events"), sf.sum("amount").alias("amount"))

    return app


@pytest.fixture
def lab(tmp_path: Path, spark: SparkSession) -> Lab:
    made = Lab(tmp_path, counts(), spark)
    made.append("events", [{"name": "abc"[n % 3], "amount": n} for n in range(12)])
    return made


def run(lab: Lab, url: str, on_step: Callable[[int], None]) -> list[StoreUnavailable]:
    """Streams in steps of two; tells of each step, and returns what the stream had to wait for."""
    waits: list[StoreUnavailable] = []
    steps = iter(range(100))

    def stepped(report: StepReport, running: RunningSet, left: int) -> None:
        on_step(next(steps))

    with lab.engine(url=url) as (engine, store):
        run_stream(engine, once=True, max_rows=2, on_step=stepped, on_retry=lambda error, _: waits.append(error))
        assert rows_of(engine, store) == {"totals": [("a", 4, 18), ("b", 4, 22), ("c", 4, 26)]}
    topic = lab.log.topic("totals.changes")
    told = topic.slice(topic.start(), topic.end()).sort_by("_offset").to_pylist()
    for name in "abc":
        chain = [(change["before"], change["after"]) for change in told if change["key"] == f'["{name}"]']
        befores, afters = zip(*chain, strict=True)
        assert befores == (None, *afters[:-1])
        assert [after["events"] for after in afters] == sorted({after["events"] for after in afters})
    return waits


def test_a_server_that_is_restarted_is_waited_for(
    lab: Lab, own_postgresql: OwnServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def restart(step: int) -> None:
        if step in (1, 3):
            own_postgresql.restart()

    run(lab, own_postgresql.new_database(), restart)

    # Down for a while, from after one step until the next has failed.
    real = patience.Patience.failed

    def start_again(self: patience.Patience, error: StoreUnavailable) -> None:
        if not is_up.is_set() and error.is_retryable:
            own_postgresql.start()
            is_up.set()
        real(self, error)

    is_up = threading.Event()
    monkeypatch.setattr(patience.Patience, "failed", start_again)
    waits = run(
        lab_again(lab), own_postgresql.new_database(), lambda step: own_postgresql.stop() if step == 2 else None
    )
    assert waits
    assert all(wait.is_retryable for wait in waits)


def lab_again(lab: Lab) -> Lab:
    """The same events on another log."""
    made = Lab(lab.folder / "again", lab.pipeline, lab.spark)
    made.append("events", [{"name": "abc"[n % 3], "amount": n} for n in range(12)])
    return made


def test_a_server_that_stays_away_ends_the_run_and_the_next_one_goes_on(
    lab: Lab, own_postgresql: OwnServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = own_postgresql.new_database()
    with monkeypatch.context() as impatient:
        impatient.setattr(patience, "GIVE_UP_SECONDS", 0.3)
        with pytest.raises(StoreUnavailable) as gone:
            run(lab, url, lambda step: own_postgresql.stop() if step == 2 else None)
    own_postgresql.restart()
    assert gone.value.is_retryable
    # The run could not release the pipeline, and its process, this one, is alive: only its lease runs out.
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE _penstock_owner SET renewed_us = renewed_us - lease_us - 1")
    run(lab, url, lambda step: None)


def test_no_transaction_is_open_while_a_slow_log_is_asked(
    lab: Lab, own_postgresql: OwnServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker answers slowly while it elects a leader, and the server ends a transaction that stays idle."""
    monkeypatch.setattr("penstock.upkeep.slices.SMALL_ROWS", 0)
    url = own_postgresql.new_database()
    asked: list[str] = []

    def watched(name: str) -> Callable[..., int]:
        real = getattr(FolderTopic, name)

        def answer(*arguments: Any) -> int:
            asked.append(name)
            with psycopg.connect(url, autocommit=True) as connection:
                # One of a heartbeat ends soon; one that this call is made in stays open.
                eventually(lambda: not connection.execute(OPEN_TRANSACTIONS).fetchall())
            found: int = real(*arguments)
            return found

        return answer

    # Late records are counted by those who read them, so the log is asked for the clock alone.
    for name in ("latest_arrivals", "count_late"):
        monkeypatch.setattr(FolderTopic, name, watched(name))
    assert run(lab, url, lambda step: None) == []
    assert {*asked} == {"latest_arrivals"}


@pytest.mark.parametrize("is_sent", [True, False])
def test_a_commit_whose_answer_is_lost_counts_nothing_twice(lab: Lab, own_postgresql: OwnServer, is_sent: bool) -> None:
    with proxy(own_postgresql.port, is_sent=is_sent) as (port, arm):
        url = own_postgresql.new_database().replace(f":{own_postgresql.port}/", f":{port}/")
        # A step that came through without an answer is not reported, so the numbers stay small.
        waits = run(lab, url, lambda step: arm() if step in (0, 2) else None)
    assert sum(wait.is_outcome_unknown for wait in waits) == 2


@contextmanager
def proxy(port: int, *, is_sent: bool) -> Iterator[tuple[int, Callable[[], None]]]:
    """A proxy before the server. Once armed it ends the next connection that writes at its COMMIT, before or after it.

    Yields its port, and what arms it.
    """
    armed = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", port))
            threading.Thread(target=forward, args=(client, server), daemon=True).start()
            threading.Thread(target=back, args=(server, client), daemon=True).start()

    def forward(client: socket.socket, server: socket.socket) -> None:
        has_fence = False
        while data := _received(client):
            has_fence = has_fence or b'UPDATE "_penstock_generations"' in data
            if b"COMMIT" in data and has_fence and armed.is_set():
                armed.clear()
                client.close()  # Nobody hears the answer.
                if is_sent:
                    server.sendall(data)
                    _received(server)
                break
            server.sendall(data)
            if b"COMMIT" in data:
                has_fence = False
        for each in (client, server):
            _shut(each)

    def back(server: socket.socket, client: socket.socket) -> None:
        while data := _received(server):
            try:
                client.sendall(data)
            except OSError:
                break
        _shut(client)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1], armed.set
    finally:
        listener.close()


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1 << 16)
    except OSError:
        return b""


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
