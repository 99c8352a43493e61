"""Only one run owns a pipeline, whatever happens to the others: real processes, killed and frozen."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text, update

from penstock.errors import OwnershipLost, PipelineOwned
from penstock.views import takeover
from penstock.views.owner import Owner, claim, own
from penstock.views.system_tables import OWNER
from tests.views.owner_process import OwnerProcess, engine_for

SECOND = timedelta(seconds=1)


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """The database, with a table of one number that runs add to."""
    engine = engine_for(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE total (n integer)"))
        connection.execute(text("INSERT INTO total VALUES (0)"))
    yield engine
    engine.dispose()


def total(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT n FROM total")).scalar_one())


def change_owner(engine: Engine, **values: Any) -> None:
    with engine.begin() as connection:
        connection.execute(update(OWNER).values(**values))


class Newcomer(threading.Thread):
    """Wants to own the pipeline, in a thread, for it may have to wait."""

    def __init__(self, engine: Engine, lease: timedelta = SECOND) -> None:
        super().__init__(daemon=True)
        self.told: list[str] = []
        self.owner: Owner | None = None
        self.refused: PipelineOwned | None = None
        self._engine, self._lease = engine, lease
        self.start()

    def run(self) -> None:
        try:
            self.owner = own(self._engine, "shop", lease=self._lease, on_wait=self.told.append)
        except PipelineOwned as error:
            self.refused = error

    def wait_until_told(self) -> str:
        deadline = time.monotonic() + 20
        while not self.told:
            assert self.is_alive(), "it did not wait"
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return self.told[-1]

    def result(self) -> Owner:
        self.join(30)
        assert self.owner is not None, (self.refused, self.told)
        return self.owner


def test_of_those_that_start_at_once_exactly_one_wins(url: str, engine: Engine) -> None:
    runs = [OwnerProcess(url) for _ in range(3)]
    try:
        at = time.time() + 2.5
        for run in runs:
            run.say(f"own {at}")
        answers = [run.answer() for run in runs]
        (winner,) = [run.pid for run, answer in zip(runs, answers, strict=True) if answer == {"epoch": 1}]
        assert [answer for answer in answers if answer != {"epoch": 1}] == [{"owned_by": winner}] * 2
    finally:
        for run in runs:
            run.__exit__(None, None, None)


def test_a_living_owner_is_named(engine: Engine) -> None:
    with own(engine, "shop") as owner:
        with pytest.raises(PipelineOwned) as refused:
            own(engine, "shop")
        error = refused.value
        assert (error.pipeline, error.pid, error.host) == ("shop", owner.pid, owner.host)
        assert error.renewed_ago < 10 * SECOND
        assert f"kill {owner.pid}" in str(error)
        with own(engine, "another") as other:
            assert other.epoch == 1


def test_what_was_given_back_can_be_taken_at_once(engine: Engine) -> None:
    first = own(engine, "shop")
    first.release()
    with own(engine, "shop") as second:
        assert (first.epoch, second.epoch) == (1, 2)
        first.release()
        with engine.begin() as connection:
            claim(connection, second)
        with pytest.raises(OwnershipLost), engine.begin() as connection:
            claim(connection, first)


def test_an_idle_owner_stays_the_owner(engine: Engine) -> None:
    with own(engine, "shop", lease=SECOND) as owner:
        time.sleep(1.6)
        with pytest.raises(PipelineOwned):
            own(engine, "shop")
        assert not owner.is_lost


def test_a_killed_owner_is_replaced_at_once(url: str, engine: Engine) -> None:
    with OwnerProcess(url, lease=600) as run:
        assert run.ask("own") == {"epoch": 1}
        run.ask("begin 5")
        run.kill()
        newcomer = Newcomer(engine)
        assert newcomer.result().epoch == 2
        assert total(engine) == 0
        newcomer.result().release()


def test_a_pid_that_is_used_again_is_not_the_owner(engine: Engine) -> None:
    first = own(engine, "shop", lease=600 * SECOND)
    change_owner(engine, process_start=1)
    with own(engine, "shop") as second:
        assert second.epoch == 2
    first.release()


@pytest.mark.parametrize("elsewhere", [{"host": "elsewhere"}, {"boot": "another container"}])
def test_an_owner_that_cannot_be_seen_has_its_lease(engine: Engine, elsewhere: dict[str, str]) -> None:
    first = own(engine, "shop", lease=600 * SECOND)
    now = first.clock()
    change_owner(engine, pid=2**22 + 1, renewed_us=now - 599_000_000, **elsewhere)
    with pytest.raises(PipelineOwned):
        own(engine, "shop", clock=lambda: now)
    change_owner(engine, renewed_us=now - 601_000_000)
    with own(engine, "shop", clock=lambda: now) as second:
        assert second.epoch == 2
    first.release()


def test_a_clock_that_was_set_back_makes_no_owner_immortal(engine: Engine) -> None:
    first = own(engine, "shop", lease=600 * SECOND)
    with own(engine, "shop", clock=lambda: first.clock() - 3_600_000_000) as second:
        assert second.epoch == 2
    first.release()


def test_an_owner_frozen_past_its_lease_wakes_up_and_changes_nothing(url: str, engine: Engine) -> None:
    with OwnerProcess(url, lease=1) as run:
        assert run.ask("own") == {"epoch": 1}
        assert run.ask("step 1") == {"is_lost": False}
        run.freeze()
        time.sleep(1.2)
        with own(engine, "shop") as owner:
            assert owner.epoch == 2
            run.thaw()
            assert run.ask("step 10") == {"lost_to": owner.pid}
            assert run.ask("is it") == {"is_lost": True}
            assert run.ask("release") == {"is_lost": True}
            with engine.begin() as connection:
                claim(connection, owner)
        assert total(engine) == 1


def test_the_heartbeat_notices_a_loss_and_ends(engine: Engine) -> None:
    first = own(engine, "shop", lease=0.2 * SECOND)
    change_owner(engine, epoch=7, holder="other")
    deadline = time.monotonic() + 10
    while not first.is_lost and time.monotonic() < deadline:
        time.sleep(0.02)
    assert first.is_lost
    first._heartbeat.join(1)
    assert not first._heartbeat.is_alive()


def test_a_database_that_was_replaced_is_not_owned(engine: Engine) -> None:
    with own(engine, "shop") as owner:
        change_owner(engine, holder="same epoch, but another database")
        with pytest.raises(OwnershipLost), engine.begin() as connection:
            claim(connection, owner)


def test_an_owner_frozen_inside_a_transaction_is_waited_for(
    url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeover, "WAIT_SECONDS", 0.3)
    with OwnerProcess(url, lease=1) as run:
        run.ask("own")
        run.ask("begin 5")
        run.freeze()
        newcomer = Newcomer(engine)
        words = newcomer.wait_until_told()
        assert f"process {run.pid}" in words
        if url.startswith("sqlite"):
            assert "is stopped" in words
            time.sleep(1.5)  # Longer than its lease: the lock cannot be taken from it.
            assert newcomer.is_alive()
            assert len(newcomer.told) > 1
            run.kill()
            owner = newcomer.result()
        else:  # The server ends the transaction before the lease is over.
            newcomer.join(30)
            time.sleep(1.2)
            owner = newcomer.owner or own(engine, "shop", lease=SECOND)
            run.thaw()
            assert "terminat" in run.ask("commit")["error"]
            assert run.ask("step 1") == {"lost_to": owner.pid}
        assert owner.epoch == 2
        assert total(engine) == 0
        owner.release()


def test_an_owner_that_was_only_slow_is_not_replaced(url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "WAIT_SECONDS", 0.2)
    with OwnerProcess(url, lease=2) as run:
        run.ask("own")
        if url.startswith("postgresql"):
            pytest.skip("the server ends a transaction that is idle for so long")
        run.ask("begin 5")
        newcomer = Newcomer(engine)
        time.sleep(2.5)
        assert newcomer.is_alive()
        assert run.ask("commit") == {"is_lost": False}
        newcomer.join(10)
        assert newcomer.refused is not None
        assert newcomer.refused.pid == run.pid
        assert total(engine) == 5


def test_somebody_else_with_the_lock_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "WAIT_SECONDS", 0.2)
    url = f"sqlite:{tmp_path}/views.db"
    engine = engine_for(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE total (n integer)"))
    with OwnerProcess(url, "another pipeline") as run:
        run.ask("own")
        run.ask("begin 1")
        newcomer = Newcomer(engine)
        assert f"process {run.pid}, which holds" in newcomer.wait_until_told()
        run.ask("commit")
        newcomer.result().release()
