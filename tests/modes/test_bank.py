"""Bank transfers: money is only moved, so the total is 0 at every moment anyone looks, and the views always agree."""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random

import apsw
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock import Pipeline
from penstock.modes.batch import run_batch
from penstock.modes.engine import Engine
from penstock.modes.stream import run_stream
from penstock.views.store import Store
from tests.modes.harness import Lab
from tests.postgresql import Server

pytestmark = pytest.mark.spark

ACCOUNTS, TRANSFERS = 12, 160


def bank() -> Pipeline:
    app = Pipeline("bank")
    app.topic("transfers", "source bigint, target bigint, amount bigint", key="source", partitions=3)

    @app.view(key="account")
    def balances(transfers: DataFrame) -> DataFrame:
        taken = sf.struct(sf.col("source").alias("account"), (-sf.col("amount")).alias("amount"))
        given = sf.struct(sf.col("target").alias("account"), sf.col("amount").alias("amount"))
        moved = transfers.select(sf.explode(sf.array(taken, given)).alias("moved"))
        return moved.groupBy("moved.account").agg(sf.sum("moved.amount").alias("balance"))

    @app.view(key=[])
    def total(balances: DataFrame) -> DataFrame:
        return balances.agg(sf.sum("balance").alias("total"), sf.count("*").alias("accounts"))

    return app


class Reader(threading.Thread):
    """Looks as often as it can, and keeps what it saw of both views in one read transaction."""

    def __init__(self, store: Store, engine: Engine) -> None:
        super().__init__(daemon=True)
        self.looks: list[tuple[int, int, int]] = []
        """The total, the sum of balances, and how many accounts there were."""
        self.error: BaseException | None = None
        self._store, self._engine = store, engine
        self._over = threading.Event()

    def run(self) -> None:
        try:
            while not self._over.is_set():
                self.look()
        except BaseException as error:
            self.error = error

    def look(self) -> None:
        sql = "SELECT t.total, t.accounts, sum(b.balance), count(*) FROM total t, balances b GROUP BY 1, 2"
        for total, accounts, balance, count in self._store.query(sql)[1]:
            assert accounts == count
            self.looks.append((total, int(balance), count))
        live = self._engine.live(self._engine.sets[0])
        assert live is not None
        balances, total_view = (view.shape.table(live.layers) for view in self._engine.sets[0])
        with self._store.snapshot() as snapshot:
            amounts = [row["balance"] for row in snapshot.read(balances).to_pylist()]
            for row in snapshot.read(total_view).to_pylist():
                if row["accounts"]:
                    self.looks.append((row["total"], sum(amounts), len(amounts)))
                    assert row["accounts"] == len(amounts)

    def end(self) -> None:
        self._over.set()
        self.join()
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.system)])
def test_the_total_is_0_at_every_look(
    tmp_path: Path, spark: SparkSession, database: str, request: pytest.FixtureRequest
) -> None:
    server: Server | None = request.getfixturevalue("postgresql") if database == "postgresql" else None
    lab = Lab(tmp_path, bank(), spark, server.new_database if server else None)
    random = Random(3)
    transfers = [
        {"source": random.randrange(ACCOUNTS), "target": random.randrange(ACCOUNTS), "amount": random.randrange(100)}
        for _ in range(TRANSFERS)
    ]
    for start in range(0, TRANSFERS, 40):
        lab.append("transfers", transfers[start : start + 40])
    with lab.engine() as (engine, store):
        run_stream(engine, once=True, until={"transfers": {0: 3}}, max_rows=10)
        reader = Reader(store, engine)
        reader.start()
        run_stream(engine, once=True, max_rows=15)
        run_batch(engine, max_rows=50)
        lab.append("transfers", transfers)
        run_stream(engine, once=True, max_rows=80)
        reader.end()
        if database == "sqlite":
            assert plain_reader(store.place) == (0, 0)
    assert len(reader.looks) >= 10
    assert {total for total, _, _ in reader.looks} == {0}
    assert {balance for _, balance, _ in reader.looks} == {0}


def plain_reader(path: str) -> tuple[int, int]:
    """What a program that knows nothing of Penstock reads, in a transaction of its own."""
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.execute("BEGIN")
        total = connection.execute("SELECT total FROM total").get
        return total, connection.execute("SELECT sum(balance) FROM balances").get
    finally:
        connection.close()
