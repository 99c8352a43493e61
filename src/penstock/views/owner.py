"""Owning a pipeline: only one run at a time may write its views.

The owner is a row in the database of the views, with an epoch that grows by one with each new owner. The first
statement of every transaction is the owner's claim on that row, so whatever an older owner still does changes nothing.
A lease decides only when a silent owner may be replaced; that two never write is decided by the epoch.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, Engine, bindparam, select, update
from sqlalchemy.exc import SQLAlchemyError

from penstock.clock import Clock
from penstock.errors import OwnershipLost
from penstock.views.database_clock import DATABASE_NOW_US, moment_us
from penstock.views.process import Process, this_process
from penstock.views.system_tables import OWNER
from penstock.views.takeover import OnWait, take_over

logger = logging.getLogger("penstock.views")

LEASE = timedelta(seconds=10)
"""An owner that gave no sign of life for this long may be replaced."""

BEATS_PER_LEASE = 4
"""So often an idle owner gives a sign of life."""

_O = OWNER.c
# Built once: this is the first statement of every transaction.
_MINE = update(OWNER).where(_O.pipeline == bindparam("of"), _O.epoch == bindparam("held"), _O.holder == bindparam("by"))
_RENEW, _RENEW_AT = _MINE.values(renewed_us=DATABASE_NOW_US), _MINE.values(renewed_us=bindparam("now"))


def own(
    engine: Engine,
    pipeline: str,
    *,
    lease: timedelta = LEASE,
    clock: Clock | None = None,
    sleep: Callable[[float], None] = time.sleep,
    on_wait: OnWait | None = None,
) -> Owner:
    """Makes this process the owner of a pipeline, and keeps it so until `release` or the end of the process.

    An owner whose process is gone, or whose lease ran out, is replaced. PipelineOwned if there is a living one. While
    another process holds the database's lock this waits for it, however long, and tells `on_wait` for whom (by
    default: a warning). Of several that come at once exactly one becomes the owner. Leases go by the database's clock;
    tests may hand in another `clock`.
    """
    process, holder = this_process(), secrets.token_hex(8)
    on_wait = on_wait or logger.warning
    epoch = take_over(engine, pipeline, holder, process, lease=lease, clock=clock, sleep=sleep, on_wait=on_wait)
    return Owner(engine, pipeline, epoch, holder, process, lease=lease, clock=clock)


def claim(connection: Connection, owner: Owner) -> None:
    """The first statement of every transaction that changes something of the pipeline.

    Takes the database's write lock (PostgreSQL: the lock of the owner's row) until the transaction ends, so nobody
    can take over in between. OwnershipLost if somebody has: then roll back and stop.
    """
    if not owner.is_lost and owner.renew(connection):
        return
    owner.lose()
    row = connection.execute(select(OWNER).where(_O.pipeline == owner.pipeline)).one_or_none()
    if row is None or row.holder is None:
        raise OwnershipLost(owner.pipeline, owner.epoch, pid=None, host=None, since_us=None)
    raise OwnershipLost(owner.pipeline, owner.epoch, pid=row.pid, host=row.host, since_us=row.started_us)


class Owner:
    """The right to write the views of a pipeline. Got by `own`; give it back with `release`, or use it in a `with`.

    A quiet thread gives a sign of life on a connection of its own, so an idle owner stays one. It ends for good once
    the pipeline was lost. A killed process leaves its row behind; the next run sees that it is gone.
    """

    def __init__(
        self,
        engine: Engine,
        pipeline: str,
        epoch: int,
        holder: str,
        process: Process,
        *,
        lease: timedelta = LEASE,
        clock: Clock | None = None,
    ) -> None:
        self.pipeline = pipeline
        self.epoch = epoch
        self.holder = holder
        self.pid = process.pid
        self.host = process.host
        self.lease = lease
        self._clock = clock
        self._renewed = self._seconds()
        self._engine = engine
        self._lost = threading.Event()
        self._stopping = threading.Event()
        self._heartbeat = threading.Thread(target=self._beat, name=f"penstock-owner-{pipeline}", daemon=True)
        self._heartbeat.start()

    def __repr__(self) -> str:
        return f"Owner({self.pipeline!r}, epoch={self.epoch}{', lost' if self.is_lost else ''})"

    def moment_us(self, connection: Connection) -> int:
        """What time it is, as its lease has it."""
        return moment_us(connection, self._clock)

    def renew(self, connection: Connection) -> bool:
        """Gives a sign of life. False if the pipeline is somebody else's."""
        began = self._seconds()
        values: dict[str, Any] = {"of": self.pipeline, "held": self.epoch, "by": self.holder}
        if self._clock is None:
            found = connection.execute(_RENEW, values)
        else:
            found = connection.execute(_RENEW_AT, values | {"now": self._clock()})
        self._renewed = began
        return found.rowcount == 1

    def renew_if_due(self, connection: Connection) -> None:
        """Gives a sign of life at the end of a long transaction.

        Meanwhile the heartbeat waits for the same row. A newcomer that came before it would find an old sign of life.
        """
        if self._seconds() - self._renewed > self.lease.total_seconds() / BEATS_PER_LEASE:
            self.renew(connection)

    def _seconds(self) -> float:
        return time.monotonic() if self._clock is None else self._clock() / 1e6

    @property
    def is_lost(self) -> bool:
        """Whether somebody else was seen to own the pipeline. False promises nothing: only `claim` does."""
        return self._lost.is_set()

    def lose(self) -> None:
        """Somebody else owns the pipeline now: no more signs of life."""
        self._lost.set()
        self._stopping.set()

    def release(self) -> None:
        """Gives the pipeline back, so that the next run can start at once. Never raises; also when it was lost."""
        is_held = not self._stopping.is_set()
        self._stopping.set()
        self._heartbeat.join()
        if not is_held or self.is_lost:
            return
        mine = (_O.pipeline == self.pipeline, _O.epoch == self.epoch, _O.holder == self.holder)
        try:
            with self._engine.begin() as connection:
                connection.execute(update(OWNER).where(*mine).values(holder=None))
        except SQLAlchemyError as error:
            logger.warning("views: pipeline %s could not be given back: %s", self.pipeline, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _beat(self) -> None:
        """Renews the lease until stopped. An error of the database is no loss: only the row says who owns."""
        while not self._stopping.wait(self.lease.total_seconds() / BEATS_PER_LEASE):
            try:
                with self._engine.begin() as connection:
                    is_mine = self.renew(connection)
            except SQLAlchemyError as error:
                logger.warning("views: no sign of life for pipeline %s: %s", self.pipeline, error)
                continue
            if not is_mine and not self._stopping.is_set():
                logger.error("views: pipeline %s was taken over by another run", self.pipeline)
                self.lose()
