"""Only one run owns a pipeline, whatever happens to the others: real processes, killed and frozen."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, select, text, update

from penstock.errors import OwnershipLost, PipelineOwned
from penstock.testing import ManualClock
from penstock.views import takeover
from penstock.views.owner import Owner, claim, own
from penstock.views.store import open_store
from penstock.views.system_tables import OWNER
from tests.eventually import LIMIT_SECONDS, eventually
from tests.views.owner_process import LEASE, OwnerProcess, engine_for

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


@pytest.fixture
def clock() -> ManualClock:
    """Shows the same time as the clock of an `OwnerProcess`, until one of them is moved."""
    return ManualClock()


def total(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT n FROM total")).scalar_one())


def change_owner(engine: Engine, **values: Any) -> None:
    with engine.begin() as connection:
        connection.execute(update(OWNER).values(**values))


def renewed_us(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(select(OWNER.c.renewed_us)).scalar_one())


def not_at_all(seconds: float) -> None:
    """How long a newcomer of a test pauses."""


class Newcomer(threading.Thread):
    """Wants to own the pipeline, in a thread because it may have to wait."""

    def __init__(self, engine: Engine, clock: ManualClock, *, sleep: Callable[[float], None] = not_at_all) -> None:
        super().__init__(daemon=True)
        self.told: list[str] = []
        self.owner: Owner | None = None
        self.refused: PipelineOwned | None = None
        self._engine, self._clock, self._sleep = engine, clock, sleep
        self.start()

    def run(self) -> None:
        try:
            self.owner = own(
                self._engine, "shop", lease=LEASE, clock=self._clock, sleep=self._sleep, on_wait=self.told.append
            )
        except PipelineOwned as error:
            self.refused = error

    def wait_until_told(self, times: int = 1) -> str:
        """Wait until it has waited for the lock that many times, and return its last message."""
        eventually(lambda: len(self.told) >= times or not self.is_alive())
        assert self.is_alive(), "it did not wait"
        return self.told[-1]

    def result(self) -> Owner:
        self.join(LIMIT_SECONDS)
        assert self.owner is not None, (self.refused, self.told)
        return self.owner


def test_of_three_that_start_at_once_one_wins(url: str, engine: Engine) -> None:
    runs = [OwnerProcess(url) for _ in range(3)]
    with ExitStack() as stack:
        for run in runs:
            stack.enter_context(run)
        for run in runs:
            run.say("own")
        answers = [run.answer() for run in runs]
        [winner] = [run.pid for run, answer in zip(runs, answers, strict=True) if answer == {"epoch": 1}]
        assert [answer for answer in answers if answer != {"epoch": 1}] == [{"owned_by": winner}] * 2


def test_a_living_owner_is_named(engine: Engine, clock: ManualClock) -> None:
    with own(engine, "shop", lease=LEASE, clock=clock) as owner:
        clock.move(4 * SECOND)
        with pytest.raises(PipelineOwned) as refused:
            own(engine, "shop", clock=clock)
        error = refused.value
        assert (error.pipeline, error.pid, error.host) == ("shop", owner.pid, owner.host)
        assert error.renewed_ago == 4 * SECOND
        assert f"kill {owner.pid}" in str(error)
        with own(engine, "another") as other:
            assert other.epoch == 1


def test_a_released_pipeline_can_be_taken_at_once(engine: Engine) -> None:
    first = own(engine, "shop", lease=LEASE)
    first.release()
    with own(engine, "shop", lease=LEASE) as second:
        assert (first.epoch, second.epoch) == (1, 2)
        first.release()
        with engine.begin() as connection:
            claim(connection, second)
        with pytest.raises(OwnershipLost), engine.begin() as connection:
            claim(connection, first)


def test_an_idle_owner_renews_its_lease(engine: Engine, clock: ManualClock) -> None:
    lease = 0.1 * SECOND
    with own(engine, "shop", lease=lease, clock=clock) as owner:
        for _ in range(3):
            clock.move(0.8 * lease)
            eventually(lambda: renewed_us(engine) == clock.now_us)
        with pytest.raises(PipelineOwned):
            own(engine, "shop", clock=clock)
        assert not owner.is_lost


def test_a_killed_owner_is_replaced_at_once(url: str, engine: Engine, clock: ManualClock) -> None:
    with OwnerProcess(url) as run:
        assert run.ask("own") == {"epoch": 1}
        run.ask("begin 5")
        run.kill()
        newcomer = Newcomer(engine, clock)  # By its clock the lease has just begun.
        assert newcomer.result().epoch == 2
        assert total(engine) == 0
        newcomer.result().release()


def test_a_pid_that_is_used_again_is_not_the_owner(engine: Engine) -> None:
    first = own(engine, "shop", lease=LEASE)
    change_owner(engine, process_start=1)
    with own(engine, "shop", lease=LEASE) as second:
        assert second.epoch == 2
    first.release()


@pytest.mark.parametrize("elsewhere", [{"host": "elsewhere"}, {"boot": "another container"}])
def test_an_owner_that_cannot_be_seen_has_its_lease(
    engine: Engine, clock: ManualClock, elsewhere: dict[str, str]
) -> None:
    first = own(engine, "shop", lease=LEASE, clock=clock)
    change_owner(engine, pid=2**22 + 1, **elsewhere)
    clock.move(LEASE - SECOND)
    with pytest.raises(PipelineOwned):
        own(engine, "shop", clock=clock)
    clock.move(2 * SECOND)
    with own(engine, "shop", lease=LEASE, clock=clock, sleep=not_at_all) as second:
        assert second.epoch == 2
    first.release()


def test_a_clock_that_was_set_back_keeps_no_owner_alive(engine: Engine, clock: ManualClock) -> None:
    first = own(engine, "shop", lease=LEASE, clock=clock)
    clock.move(-LEASE - SECOND)
    with own(engine, "shop", lease=LEASE, clock=clock, sleep=not_at_all) as second:
        assert second.epoch == 2
    first.release()


@pytest.mark.parametrize("ahead", [2 * LEASE, -2 * LEASE])
def test_the_clock_of_another_machine_keeps_or_takes_no_lease(
    engine: Engine, ahead: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time_ns
    with own(engine, "shop", lease=LEASE) as owner:
        monkeypatch.setattr(time, "time_ns", lambda: real() + ahead // SECOND * 1_000_000_000)
        with pytest.raises(PipelineOwned):
            own(engine, "shop", lease=LEASE)
        with engine.begin() as connection:
            claim(connection, owner)  # By the other clock; what it leaves is read by the right one.
        monkeypatch.setattr(time, "time_ns", real)
        with pytest.raises(PipelineOwned):
            own(engine, "shop", lease=LEASE)


def test_an_owner_frozen_past_its_lease_changes_nothing(url: str, engine: Engine, clock: ManualClock) -> None:
    with OwnerProcess(url) as run:
        assert run.ask("own") == {"epoch": 1}
        assert run.ask("step 1") == {"is_lost": False}
        run.freeze()
        clock.move(LEASE + SECOND)
        with own(engine, "shop", lease=LEASE, clock=clock, sleep=not_at_all) as owner:
            assert owner.epoch == 2
            run.thaw()
            assert run.ask("step 10") == {"lost_to": owner.pid}
            assert run.ask("is it") == {"is_lost": True}
            assert run.ask("release") == {"is_lost": True}
            with engine.begin() as connection:
                claim(connection, owner)
        assert total(engine) == 1


def test_the_heartbeat_notices_a_loss_and_ends(engine: Engine) -> None:
    others = {*threading.enumerate()}
    first = own(engine, "shop", lease=0.2 * SECOND)
    change_owner(engine, epoch=7, holder="other")
    eventually(lambda: first.is_lost)
    eventually(
        lambda: "penstock-owner-shop" not in {thread.name for thread in threading.enumerate() if thread not in others}
    )


def test_a_database_that_was_replaced_is_not_owned(engine: Engine) -> None:
    with own(engine, "shop", lease=LEASE) as owner:
        change_owner(engine, holder="same epoch, but another database")
        with pytest.raises(OwnershipLost), engine.begin() as connection:
            claim(connection, owner)


def test_a_newcomer_waits_for_a_frozen_transaction(
    url: str, engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeover, "WAIT_SECONDS", 0.2)
    with OwnerProcess(url) as run:
        run.ask("own")
        run.ask("begin 5")
        run.freeze()
        clock.move(LEASE + SECOND)
        newcomer = Newcomer(engine, clock)
        words = newcomer.wait_until_told(times=3)  # Its lease is over, but the lock cannot be taken from it.
        assert f"process {run.pid}" in words
        if url.startswith("sqlite"):
            assert "is stopped" in words
            run.kill()
            owner = newcomer.result()
        else:
            terminate_oldest_transaction(engine)  # As the server does once it was idle for too long.
            owner = newcomer.result()
            run.thaw()
            assert "terminat" in run.ask("commit")["error"]
            assert run.ask("step 1") == {"lost_to": owner.pid}
        assert owner.epoch == 2
        assert total(engine) == 0
        owner.release()


def test_a_transaction_longer_than_the_lease_ends_with_a_sign_of_life(url: str, clock: ManualClock) -> None:
    """The heartbeat waits for the lock of the transaction itself, or gave up waiting."""
    lease = timedelta(hours=1)
    with open_store(url, lease=lease) as store, own(store.engine, "shop", lease=lease, clock=clock) as owner:
        with store.transaction(owner):
            clock.move(lease + SECOND)
        with pytest.raises(PipelineOwned):
            own(store.engine, "shop", clock=clock, sleep=not_at_all)


def terminate_oldest_transaction(engine: Engine) -> None:
    oldest = (
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction' "
        "ORDER BY xact_start LIMIT 1"
    )
    with engine.connect() as connection:
        connection.execute(text(f"SELECT pg_terminate_backend(({oldest}))"))


def test_an_owner_that_was_only_slow_is_not_replaced(
    url: str, engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeover, "WAIT_SECONDS", 0.2)
    pauses: list[float] = []
    looked, may_look_again = threading.Event(), threading.Event()

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        looked.set()
        may_look_again.wait(LIMIT_SECONDS)

    with OwnerProcess(url) as run:
        run.ask("own")
        run.ask("begin 5")
        clock.move(LEASE + SECOND)
        newcomer = Newcomer(engine, clock, sleep=pause)
        newcomer.wait_until_told()
        assert run.ask("commit") == {"is_lost": False}
        assert looked.wait(LIMIT_SECONDS), "it took over without giving the owner time"
        run.ask(f"move {(LEASE + SECOND).total_seconds()}")
        assert run.ask("step 1") == {"is_lost": False}  # A sign of life.
        may_look_again.set()
        newcomer.join(LIMIT_SECONDS)
        assert newcomer.refused is not None
        assert newcomer.refused.pid == run.pid
        assert pauses == [LEASE.total_seconds() / takeover.LOOKS_PER_LEASE]
        assert total(engine) == 6


def test_another_process_with_the_lock_is_named(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeover, "WAIT_SECONDS", 0.2)
    url = f"sqlite:{tmp_path}/views.db"
    engine = engine_for(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE total (n integer)"))
    with OwnerProcess(url, "another pipeline") as run:
        run.ask("own")
        run.ask("begin 1")
        newcomer = Newcomer(engine, clock)
        assert f"process {run.pid}, which holds" in newcomer.wait_until_told()
        run.ask("commit")
        newcomer.result().release()
