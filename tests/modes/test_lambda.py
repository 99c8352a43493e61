"""Lambda: a batch part and a speed part are read as one, and nobody sees where one ends and the other begins."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock import Pipeline, agg
from penstock.errors import RowsReplaced, StoreUnavailable
from penstock.modes.batch import run_batch
from penstock.modes.engine import Engine
from penstock.modes.replays import run_kappa
from penstock.modes.rollback import roll_back
from penstock.modes.rounds import run_lambda
from penstock.modes.running import RunningSet
from penstock.modes.stream import Stop, run_stream
from penstock.modes.switching import seen_shape
from penstock.upkeep.compiled import CompiledView, compile_pipeline
from penstock.views.catalog import Catalog, Generation
from penstock.views.store import Store, open_store
from tests.modes import test_bank as bank
from tests.modes import test_retention as retention
from tests.modes.harness import Lab, rows_of
from tests.postgresql import Server

pytestmark = pytest.mark.spark

NOW, LATER = timedelta(0), timedelta(hours=1)
"""A batch part is due at once, or not in this test."""


def clicks() -> Pipeline:
    app = Pipeline("clicks")
    app.topic("events", "user string, n bigint, x double")
    app.view(
        "hits", key="user", changelog="hits.changes", sql="SELECT user, count(*) AS hits FROM events GROUP BY user"
    )
    app.view("histogram", key="hits", sql="SELECT hits, count(*) AS users FROM hits GROUP BY hits")
    app.view("few", key="user", sql="SELECT user, count(*) AS c FROM events GROUP BY user HAVING c < 3")

    @app.view(key="user")
    def stats(events: DataFrame) -> DataFrame:
        return events.groupBy("user").agg(
            agg.mean("x").alias("mean"),
            agg.variance("x").alias("variance"),
            agg.distinct("n").alias("distinct"),
            agg.quantiles("x", [0.1, 0.5, 0.9]).alias("quantiles"),
        )

    return app


@pytest.fixture(scope="module")
def compiled(spark: SparkSession) -> tuple[CompiledView, ...]:
    views = compile_pipeline(clicks(), spark)
    assert {view.name: view.keeping.how for view in views} == {
        "hits": "fold", "histogram": "fold", "few": "redo", "stats": "fold",
    }  # fmt: skip
    return views


@pytest.fixture
def lab(tmp_path: Path, spark: SparkSession, compiled: tuple[CompiledView, ...]) -> Lab:
    return Lab(tmp_path, clicks(), spark, compiled=compiled)


def append(lab: Lab, users: str) -> None:
    """One event of each user, in that order."""
    lab.append("events", [{"user": user, "n": n % 3, "x": n * 0.1} for n, user in enumerate(users)])


def lived(engine: Engine) -> list[Generation]:
    found = [engine.live(views) for views in engine.sets]
    assert all(each is not None for each in found)
    return [each for each in found if each is not None]


def speed_rows(engine: Engine, store: Store) -> dict[str, int]:
    """How many rows each speed part really has, those that hide others included."""
    found = {}
    for views in engine.sets:
        live = engine.live(views)
        assert live is not None
        assert live.beneath is not None
        for view in views:
            [(count,)] = store.query(f'SELECT count(*) FROM "{view.shape.table(live.layers).top.name}"')[1]
            found[view.name] = int(count)
    return found


def tables(store: Store) -> set[str]:
    """The tables of views that are in the database, and the SQL views over two of them."""
    names = "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name LIKE '%\\_\\_%' ESCAPE '\\'"
    return {name for (name,) in store.query(names)[1]}


def known_tables(store: Store) -> set[str]:
    with store.snapshot() as snapshot:
        return {name for each in Catalog(snapshot.connection).generations() for name in each.tables}


# --- what is read ---


def test_a_view_over_a_view_counts_merged_rows_once(lab: Lab) -> None:
    append(lab, "aaab")
    with lab.engine("one") as (engine, store):
        run_lambda(engine, every=LATER, once=True)
        assert rows_of(engine, store)["histogram"] == [(1, 1), (3, 1)]
        append(lab, "aa")
        run_lambda(engine, every=LATER, once=True)
        rows = rows_of(engine, store)
        assert rows["hits"] == [("a", 5), ("b", 1)]
        assert rows["histogram"] == [(1, 1), (5, 1)]
        assert store.query("SELECT hits, users FROM histogram ORDER BY hits")[1] == [(1, 1), (5, 1)]


def test_a_speed_part_is_empty_after_a_round_and_then_holds_what_was_touched(lab: Lab) -> None:
    append(lab, "aabbcd")
    with lab.engine("one") as (engine, store):
        run_lambda(engine, every=LATER, once=True)
        assert set(speed_rows(engine, store).values()) == {0}
        append(lab, "aa")
        run_lambda(engine, every=LATER, once=True)
        # In the histogram what had 2 hits is one fewer and what has 4 is new; of `few`, user a is only hidden.
        assert speed_rows(engine, store) == {"hits": 1, "histogram": 2, "few": 1, "stats": 1}
        before = rows_of(engine, store)
        run_lambda(engine, every=NOW, once=True)
        assert set(speed_rows(engine, store).values()) == {0}
        assert rows_of(engine, store) == before == lab.batch()


def test_aggregates_are_merged_across_the_cut(lab: Lab) -> None:
    random = Random(5)
    rows = [{"user": random.choice("ab"), "n": random.randrange(40), "x": random.gauss(0, 1e3)} for _ in range(300)]
    lab.append("events", rows)
    expected = lab.batch()
    assert lab.as_lambda(max_rows=40) == expected
    with lab.engine("one") as (engine, store):
        run_lambda(engine, every=LATER, once=True, until="events=150")
        assert rows_of(engine, store)["stats"] != expected["stats"]
        run_lambda(engine, every=LATER, once=True, max_rows=30)
        assert rows_of(engine, store) == expected


def test_a_redone_row_that_vanishes_after_the_cut_stays_away(lab: Lab) -> None:
    append(lab, "aabc")
    with lab.engine("one") as (engine, store):
        run_lambda(engine, every=LATER, once=True)
        assert rows_of(engine, store)["few"] == [("a", 2), ("b", 1), ("c", 1)]
        append(lab, "a")
        run_lambda(engine, every=LATER, once=True)
        assert rows_of(engine, store)["few"] == [("b", 1), ("c", 1)]
        for every in (LATER, NOW, LATER):
            append(lab, "ab")
            run_lambda(engine, every=every, once=True)
            assert "a" not in dict(rows_of(engine, store)["few"])
        assert rows_of(engine, store)["few"] == [("c", 1)]


def test_until_is_where_it_ends_and_nobody_goes_back(lab: Lab) -> None:
    append(lab, "abababcccc")
    with lab.engine("one") as (engine, store):
        run_lambda(engine, every=NOW, until="events=4")
        assert rows_of(engine, store)["hits"] == [("a", 2), ("b", 2)]
        run_lambda(engine, every=NOW, until="events=7", max_rows=1)
        assert rows_of(engine, store)["hits"] == [("a", 3), ("b", 3), ("c", 1)]
        numbers = [each.number for each in lived(engine)]
        run_lambda(engine, every=NOW, until="events=5")
        assert rows_of(engine, store)["hits"] == [("a", 3), ("b", 3), ("c", 1)]
        assert all(each.number > number for each, number in zip(lived(engine), numbers, strict=True))
        run_lambda(engine, every=NOW, once=True)
        assert rows_of(engine, store) == lab.batch()


# --- beside the other modes ---


def test_lambda_begins_from_what_a_stream_left_and_a_stream_goes_on_with_a_pair(lab: Lab) -> None:
    append(lab, "aab")
    with lab.engine("one") as (engine, store):
        run_stream(engine, once=True)
        before = rows_of(engine, store)
        assert all(each.beneath is None for each in lived(engine))
        run_lambda(engine, every=LATER, once=True)
        assert all(each.beneath is not None for each in lived(engine))
        assert rows_of(engine, store) == before
        assert tables(store) == known_tables(store)
    append(lab, "abc")
    with lab.engine("one") as (engine, store):
        pairs = [each.layers for each in lived(engine)]
        run_stream(engine, once=True, max_rows=1)
        assert [each.layers for each in lived(engine)] == pairs
        assert rows_of(engine, store) == lab.batch()
        assert speed_rows(engine, store)["hits"] == 3


def test_a_pair_that_was_replaced_is_kept_for_a_rollback_and_dropped_whole(
    lab: Lab, compiled: tuple[CompiledView, ...]
) -> None:
    other = [replace(view, fingerprint="other") for view in compiled]
    append(lab, "aab")
    with lab.engine("one") as (engine, store):
        run_lambda(engine, every=LATER, once=True)
        append(lab, "ac")
        run_lambda(engine, every=LATER, once=True)
        before, pairs = rows_of(engine, store), [each.layers for each in lived(engine)]
    with lab.engine("one", compiled=other) as (engine, store):
        run_kappa(engine, once=True)
        assert all(each.beneath is None for each in lived(engine))
        assert rows_of(engine, store) == before
    with open_store(f"sqlite:{lab.folder}/one.db") as store:
        for view in ("hits", "few", "stats"):
            assert roll_back(store, view).beneath is not None
    append(lab, "ad")
    with lab.engine("one") as (engine, store):
        assert [each.layers for each in lived(engine)] == pairs
        run_lambda(engine, every=LATER, once=True)
        assert rows_of(engine, store) == lab.batch()
        # A batch replaces pairs like anything else.
        run_batch(engine)
        assert tables(store) == known_tables(store)
        run_batch(replace(engine, keep_old=timedelta(0)))
        assert rows_of(engine, store) == lab.batch()
        assert tables(store) == known_tables(store)
        assert {each.number for each in lived(engine)} == {int(name.rpartition("__")[2]) for name in tables(store)}


def test_a_round_tells_a_changelog_nothing(lab: Lab) -> None:
    append(lab, "aab")
    with lab.engine("one") as (engine, store):
        run_lambda(engine, every=LATER, once=True)
        engine.deliver()
        topic = lab.log.topic("hits.changes")
        assert topic.end() == {0: 2}
        run_lambda(engine, every=NOW, once=True)
        engine.deliver()
        assert topic.end() == {0: 2}
        append(lab, "ac")
        run_lambda(engine, every=LATER, once=True)
        run_lambda(engine, every=NOW, once=True)
        engine.deliver()
        told = topic.slice({0: 2}, topic.end()).to_pylist()
        assert sorted((each["operation"], each["before"], each["after"]) for each in told) == [
            ("insert", None, {"user": "c", "hits": 1}),
            ("update", {"user": "a", "hits": 2}, {"user": "a", "hits": 3}),
        ]
        assert rows_of(engine, store)["hits"] == [("a", 3), ("b", 1), ("c", 1)]


# --- retention ---


def remove(lab: Lab, count: int) -> None:
    """Retention takes away all that is sealed, which are the first so many."""
    topic = lab.topics["events"]
    topic.alter(retention_bytes=1)
    topic.retain()
    assert topic.start() == {0: count}


@pytest.mark.parametrize("removed", ["what the batch part has", "more than the batch part has"])
def test_a_round_loses_nothing_of_what_retention_removed(tmp_path: Path, spark: SparkSession, removed: str) -> None:
    lab = Lab(tmp_path, retention.visits(), spark)
    retention.append(lab, retention.FIRST)
    lab.topics["events"].seal(active=True)
    with lab.engine("one") as (engine, store):
        run_lambda(engine, every=LATER, once=True)
        retention.append(lab, retention.SECOND)
        run_lambda(engine, every=LATER, once=True, max_rows=2)
        assert rows_of(engine, store) == retention.BEFORE
        if removed == "more than the batch part has":
            lab.topics["events"].seal(active=True)
        retention.append(lab, retention.LATE)
        remove(lab, 3 if removed == "what the batch part has" else 6)
        layers = [each.layers for each in lived(engine)]
        run_lambda(engine, every=NOW, once=True)
        assert all(old != new.layers for old, new in zip(layers, lived(engine), strict=True))
        assert rows_of(engine, store) == retention.AFTER
        assert tables(store) == known_tables(store)
        # And again: the batch part that was copied is one to begin with like any other.
        retention.append(lab, [(90, "e", 256)])
        run_lambda(engine, every=LATER, once=True)
        run_lambda(engine, every=NOW, once=True)
        rows = rows_of(engine, store)
        assert rows["folded"] == [retention.AFTER["folded"][0], (retention.NEXT_HOUR, 3, 292)]
        assert rows["by_who"] == [*retention.AFTER["by_who"], ("e", 1, 256)]


def test_what_a_stream_left_begins_a_pair_where_the_log_no_longer_has_it(tmp_path: Path, spark: SparkSession) -> None:
    lab = Lab(tmp_path, retention.visits(), spark)
    retention.append(lab, retention.FIRST)
    lab.topics["events"].seal(active=True)
    retention.append(lab, retention.SECOND)
    with lab.engine("one") as (engine, store):
        run_stream(engine, once=True, max_rows=4)
        remove(lab, 3)
        retention.append(lab, retention.LATE)
        run_lambda(engine, every=LATER, once=True)
        assert all(each.beneath is not None for each in lived(engine))
        assert rows_of(engine, store) == retention.AFTER


# --- what goes wrong ---


class Killed(Exception):
    pass


@pytest.mark.parametrize("at", ["on_top_of", "switch"])
def test_a_round_that_dies_leaves_the_pair_and_the_next_one_removes_what_it_left(
    lab: Lab, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(lab, "aab")
    with lab.engine("one") as (engine, store):
        run_lambda(engine, every=LATER, once=True)
        append(lab, "ac")
        run_lambda(engine, every=LATER, once=True)
        before, pairs, there = rows_of(engine, store), [each.layers for each in lived(engine)], tables(store)

        def killed(*_: object, **__: object) -> None:
            raise Killed

        with monkeypatch.context() as patched:
            patched.setattr(Engine, at, killed)
            with pytest.raises(Killed):
                run_lambda(engine, every=NOW, once=True)
    with lab.engine("one") as (engine, store):
        assert [each.layers for each in lived(engine)] == pairs
        assert rows_of(engine, store) == before
        assert store.query("SELECT hits FROM hits ORDER BY user")[1] == [(3,), (1,), (1,)]
        assert tables(store) > there
        append(lab, "c")
        run_lambda(engine, every=NOW, once=True)
        rows = rows_of(engine, store)
        assert rows == lab.batch()
        assert tables(store) == known_tables(store)
        assert len(tables(store)) == len(there)


def test_a_round_whose_switch_went_through_without_an_answer_is_gone_on_with(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(lab, "aab")
    real = Engine.switch
    switched: list[RunningSet] = []
    stop = Stop()

    def unanswered(self: Engine, *sets: RunningSet, is_same_code: bool = False) -> None:
        before = [each.generation for each in sets]
        real(self, *sets, is_same_code=is_same_code)
        switched.extend(sets)
        if len(switched) == 1:
            for each, generation in zip(sets, before, strict=True):
                each.generation = generation
            raise StoreUnavailable("here", "the connection broke", is_outcome_unknown=True)

    def look() -> None:
        is_through = all(each.fence.offsets == {"events": {0: 5}} for each in lived(engine))
        if is_through and len(switched) >= 3:
            stop()

    with lab.engine("one") as (engine, store):
        run_stream(engine, once=True)
        with monkeypatch.context() as patched:
            patched.setattr(Engine, "switch", unanswered)
            waits: list[object] = []

            def waited(error: StoreUnavailable, seconds: float) -> None:
                waits.append(error)
                append(lab, "ac")

            timer = threading.Timer(60, stop)
            timer.start()
            run_lambda(
                engine, every=LATER, on_retry=waited, on_step=lambda *_: look(), on_round=lambda *_: look(), stop=stop
            )
            timer.cancel()
        assert len(waits) == 1
        assert rows_of(engine, store) == lab.batch()
        assert all(each.beneath is not None for each in lived(engine))
        run_lambda(engine, every=NOW, once=True)
        assert tables(store) == known_tables(store)


# --- readers ---


class Reader(threading.Thread):
    """Asks for the total and the balances, as often as it can: in one statement, then as commands read them."""

    def __init__(self, store: Store) -> None:
        super().__init__(daemon=True)
        self.looks: list[tuple[Any, ...]] = []
        self.error: BaseException | None = None
        self._store = store
        self._over = threading.Event()

    def run(self) -> None:
        sql = "SELECT t.total, t.accounts, sum(b.balance), count(*) FROM total t, balances b GROUP BY 1, 2"
        try:
            while not self._over.is_set():
                found = self._store.query(sql)[1]
                self.looks.append(tuple(map(int, found[0])) if len(found) == 1 else tuple(found))
                try:
                    self.looks.append(self._look_into_a_snapshot())
                except RowsReplaced:
                    # A snapshot of PostgreSQL does not keep tables that are dropped: its readers read again.
                    assert self._store.engine.dialect.name == "postgresql"
        except BaseException as error:
            self.error = error

    def _look_into_a_snapshot(self) -> tuple[Any, ...]:
        with self._store.snapshot() as snapshot:
            live = Catalog(snapshot.connection).find_view("total")
            total, balances = (
                snapshot.read(seen_shape(live.views[name]).table(live.layers)).to_pylist()
                for name in ("total", "balances")
            )
        [row] = total
        return row["total"], row["accounts"], sum(each["balance"] for each in balances), len(balances)

    def end(self) -> None:
        self._over.set()
        self.join()
        self.looks.append(self._look_into_a_snapshot())
        if self.error is not None:
            raise self.error


@contextmanager
def reading(store: Store) -> Iterator[Reader]:
    reader = Reader(store)
    reader.start()
    try:
        yield reader
    finally:
        reader.end()


@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.system)])
def test_readers_see_neither_a_gap_nor_anything_twice_while_rounds_go_on(
    tmp_path: Path, spark: SparkSession, database: str, request: pytest.FixtureRequest
) -> None:
    server: Server | None = request.getfixturevalue("postgresql") if database == "postgresql" else None
    new_url: Callable[[], str] | None = server.new_database if server else None
    lab = Lab(tmp_path, bank.bank(), spark, new_url)
    random = Random(3)

    def transfer(count: int) -> None:
        accounts = range(bank.ACCOUNTS)
        lab.append(
            "transfers",
            [
                {"source": random.choice(accounts), "target": random.choice(accounts), "amount": random.randrange(100)}
                for _ in range(count)
            ],
        )

    # Every account is there from the first step on, so that their number tells of a gap.
    pairs = [(n, (n + 1) % bank.ACCOUNTS) for n in range(bank.ACCOUNTS)]
    lab.append("transfers", [{"source": source, "target": target, "amount": 7} for source, target in pairs])
    stop, rounds = Stop(), []

    def rounded(pair: RunningSet, seconds: float) -> None:
        rounds.append(pair.generation.number)
        transfer(40)
        if len(rounds) == 5:
            stop()

    with lab.engine() as (engine, store):
        run_lambda(engine, every=LATER, once=True)
        with reading(store) as reader:
            steps: list[int] = []
            run_lambda(
                engine,
                every=NOW,
                max_rows=15,
                stop=stop,
                on_round=rounded,
                on_step=lambda *_: steps.append(1),
            )
            run_stream(engine, once=True)
        rows = rows_of(engine, store)
    assert len(rounds) == 5
    assert steps
    assert len(reader.looks) >= 20
    assert set(reader.looks) == {(0, bank.ACCOUNTS, 0, bank.ACCOUNTS)}
    assert rows == lab.batch()
