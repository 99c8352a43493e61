"""How a pipeline gets its next owner: who may be replaced, who may not, and for whom to wait.

| the owner                                     | a newcomer                                             |
|-----------------------------------------------|--------------------------------------------------------|
| gave the pipeline back, or never was          | takes it                                               |
| was on this machine, and its process is gone  | takes it at once                                       |
| gave a sign of life within its lease          | is refused: PipelineOwned                              |
| was silent for longer than its lease          | takes it                                               |
| is inside a transaction (or anybody, SQLite)  | waits and says for whom; then, if it looks dead, gives |
|                                               | it one lease for a sign of life before it takes it     |
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, Engine, Row, Select, Table, select, text, update
from sqlalchemy.dialects import postgresql, sqlite

from penstock.clock import Clock
from penstock.errors import PipelineOwned
from penstock.views.database_clock import moment_us
from penstock.views.process import Process, is_stopped, write_lock_holder
from penstock.views.system_tables import OWNER, create_system_tables

OnWait = Callable[[str], None]
"""Is told, every few seconds, for whom a newcomer waits."""

WAIT_SECONDS = 2.0
"""How long one attempt waits for a lock before it says so and tries again."""

LOOKS_PER_LEASE = 8
"""How often a newcomer looks for a sign of life from an owner that looks dead."""

_MICROSECOND = timedelta(microseconds=1)
_LOCK_NOT_AVAILABLE = "55P03"


def take_over(
    engine: Engine,
    pipeline: str,
    holder: str,
    process: Process,
    *,
    lease: timedelta,
    clock: Clock | None,
    sleep: Callable[[float], None],
    on_wait: OnWait,
) -> int:
    """Enters a new owner and returns its epoch, or raises PipelineOwned."""
    newcomer = _Newcomer(pipeline, holder, process, lease, clock)
    has_tables = False
    while True:
        try:
            if not has_tables:
                with _attempt(engine) as connection:
                    create_system_tables(connection)
                has_tables = True
            with _attempt(engine) as connection:
                epoch = newcomer.take(connection)
        except Exception as error:
            if not _is_locked(error):
                raise
            newcomer.has_waited = True
            on_wait(_waiting_for(engine, pipeline))
        else:
            if epoch is not None:
                return epoch
            sleep(newcomer.look_again_seconds)


class _Newcomer:
    """One that wants to own a pipeline, and what it has seen of the one that does."""

    def __init__(self, pipeline: str, holder: str, process: Process, lease: timedelta, clock: Clock | None) -> None:
        self.has_waited = False
        self.look_again_seconds = 0.0
        self._pipeline = pipeline
        self._holder = holder
        self._process = process
        self._lease_us = lease // _MICROSECOND
        self._clock = clock
        self._silent: tuple[int, int] | None = None
        """Epoch and last sign of life of an owner that looks dead."""
        self._looks = 0
        """Number of pauses for which it has been silent."""

    def take(self, connection: Connection) -> int | None:
        """The new epoch; None to look again later. The first statement writes, and so takes the lock."""
        process = self._process
        values: dict[str, Any] = {
            "holder": self._holder,
            "pid": process.pid,
            "process_start": process.start,
            "host": process.host,
            "boot": process.boot,
            "lease_us": self._lease_us,
        }
        began = time.monotonic()
        free = {**values, "pipeline": self._pipeline, "epoch": 0, "holder": None, "started_us": 0, "renewed_us": 0}
        connection.execute(_insert(connection)(OWNER).values(free).on_conflict_do_nothing())
        mine = OWNER.c.pipeline == self._pipeline
        row = connection.execute(select(OWNER).where(mine).with_for_update()).one()
        self.has_waited |= time.monotonic() - began > 0.5 * WAIT_SECONDS
        now = moment_us(connection, self._clock)  # After the lock: it may have been waited for.
        if not self._may_replace(row, now):
            return None
        epoch: int = row.epoch + 1
        changed = {**values, "epoch": epoch, "started_us": now, "renewed_us": now}
        connection.execute(update(OWNER).where(mine).values(changed))
        return epoch

    def _may_replace(self, row: Row[Any], now: int) -> bool:
        if row.holder is None or _process_of(row).state() == "gone":
            return True
        silent_us, lease_us = now - row.renewed_us, int(row.lease_us)
        # A clock that was set back by more than a lease must not make an owner immortal.
        if abs(silent_us) <= lease_us:
            raise PipelineOwned(self._pipeline, row.pid, row.host, row.started_us, max(silent_us, 0) * _MICROSECOND)
        if not self.has_waited:
            return True
        # It may have been busy in one long transaction, and its sign of life is behind us in the queue for the lock.
        if self._silent != (row.epoch, row.renewed_us):
            self._silent, self._looks = (row.epoch, row.renewed_us), 0
            self.look_again_seconds = lease_us / 1e6 / LOOKS_PER_LEASE
        else:
            self._looks += 1
        return self._looks >= LOOKS_PER_LEASE


@contextmanager
def _attempt(engine: Engine) -> Iterator[Connection]:
    """A transaction that waits for a lock only so long."""
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            connection.detach()  # Not given back: its busy timeout is not what others expect.
            _driver_query(connection, f"PRAGMA busy_timeout = {int(WAIT_SECONDS * 1000)}")
        with connection.begin():
            if engine.dialect.name == "postgresql":
                connection.execute(text(f"SET LOCAL lock_timeout = {int(WAIT_SECONDS * 1000)}"))
            yield connection


def _is_locked(error: Exception) -> bool:
    cause = getattr(error, "orig", None) or error
    if getattr(cause, "sqlstate", None) == _LOCK_NOT_AVAILABLE:
        return True
    return type(cause).__name__ in ("OperationalError", "BusyError") and "database is locked" in str(cause)


def _waiting_for(engine: Engine, pipeline: str) -> str:
    """What to tell people while a lock is held by somebody else."""
    owner, database = _look(engine, pipeline)
    if engine.dialect.name == "sqlite":
        pid = write_lock_holder(database) or (owner.pid if owner is not None else None)
        if pid is None:
            return f"views: waiting for somebody who holds the write lock of {database}"
        what = "is stopped while it holds" if is_stopped(pid) else "holds"
        return (
            f"views: waiting for process {pid}, which {what} the write lock of {database}\n"
            f"  pipeline {pipeline!r} starts once it goes on (kill -CONT {pid}) or is gone (kill -9 {pid})"
        )
    who = f"process {owner.pid} on {owner.host}" if owner is not None else "another run"
    return (
        f"views: waiting for {who}, which is inside a transaction of pipeline {pipeline!r}\n"
        "  if it does nothing there, the server ends it (idle_in_transaction_session_timeout)"
    )


def _look(engine: Engine, pipeline: str) -> tuple[Process | None, str]:
    """Who is entered as owner, and the file of the database. Without a transaction: a reader waits for nobody."""
    owner, file = None, ""
    query = select(OWNER.c.pid, OWNER.c.process_start, OWNER.c.host, OWNER.c.boot).where(
        OWNER.c.pipeline == pipeline, OWNER.c.holder.is_not(None)
    )
    with suppress(Exception), engine.connect() as connection:  # Only words hang on it; the tables may not be there yet.
        if engine.dialect.name == "sqlite":
            file = _driver_query(connection, "PRAGMA database_list")[0][2]
        found = _driver_query(connection, _as_text(query, engine))
        owner = Process(*found[0]) if found else None
    return owner, file


def _driver_query(connection: Connection, sql: str) -> list[Any]:
    """Runs a statement on the driver's own connection, where SQLAlchemy begins no transaction."""
    cursor = connection.connection.cursor()
    try:
        cursor.execute(sql)
        return list(cursor.fetchall()) if cursor.description else []
    finally:
        cursor.close()


def _as_text(query: Select[Any], engine: Engine) -> str:
    return str(query.compile(dialect=engine.dialect, compile_kwargs={"literal_binds": True}))


def _insert(connection: Connection) -> Callable[[Table], Any]:
    return postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert


def _process_of(row: Row[Any]) -> Process:
    return Process(row.pid, row.process_start, row.host, row.boot)
