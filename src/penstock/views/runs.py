"""Runs: who worked on a pipeline, how, since when, how fast, and how it ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, and_, bindparam, delete, insert, select, update

from penstock.views.database_clock import DATABASE_NOW_US, moment_us
from penstock.views.owner import Owner
from penstock.views.system_tables import OWNER, RUN_STEPS, RUNS

RUNS_MAX = 100
"""So many runs of a pipeline are remembered."""

_R, _O, _S = RUNS.c, OWNER.c, RUN_STEPS.c
_OF_RUN = and_(_S.pipeline == _R.pipeline, _S.epoch == _R.epoch, _S.mode == _R.mode)
_UPDATE = (
    update(RUNS)
    .where(_R.pipeline == bindparam("of"), _R.epoch == bindparam("held"), _R.mode == bindparam("by"))
    .values(seen_us=DATABASE_NOW_US, rows=bindparam("read"), steps=bindparam("taken"), samples=bindparam("lately"))
)


class ViewSteps(NamedTuple):
    """How the steps of a view were computed."""

    in_driver: int = 0
    """As small plans."""
    by_spark: int = 0
    """As jobs of Spark, at least in part."""


@dataclass(frozen=True)
class Sample:
    """What a run did in about a second."""

    at_us: int
    """When it ended."""
    rows: int
    """Records read."""
    steps: int
    seconds: float
    """How long the longest step took."""
    late: int
    corrected: int
    lag: int
    """Records that were left."""


@dataclass(frozen=True)
class Run:
    """One run of a pipeline."""

    pipeline: str
    epoch: int
    """Grows by one with each run."""
    mode: str
    pid: int
    host: str
    started_us: int
    seen_us: int
    """Its last sign of life."""
    ended_us: int | None = None
    """None while it runs, and if it was killed."""
    outcome: str = ""
    """`done`, `stopped` or `failed: why`; empty while it runs."""
    rows: int = 0
    """Records read so far."""
    steps: int = 0
    samples: tuple[Sample, ...] = ()
    """The last of them, the oldest first."""
    views: Mapping[str, ViewSteps] = field(default_factory=dict)
    """How the steps of each view were computed, of those that asked for rows."""
    silent_us: int = 0
    """After so long without a sign of life it is taken for dead; 0 if another run owns the pipeline already."""
    read_us: int = 0
    """When all this was read, by the clock of the database, as are the other times of the run itself."""

    def is_alive(self, moment_us: int | None = None) -> bool:
        """Whether it ran when this was read, or at another moment, as far as can be known."""
        now = self.read_us if moment_us is None else moment_us
        return self.ended_us is None and now - self.seen_us < self.silent_us

    def state(self, moment_us: int | None = None) -> str:
        """`running`, how it ended, or `killed` if nobody noted an end."""
        return "running" if self.is_alive(moment_us) else self.outcome or "killed"


def begin(connection: Connection, owner: Owner, mode: str) -> Run:
    """Notes a run, within the owner's transaction. One of the same owner and mode is gone on with."""
    mine = (_R.pipeline == owner.pipeline, _R.epoch == owner.epoch, _R.mode == mode)
    known = connection.execute(select(RUNS, _S.views).outerjoin(RUN_STEPS, _OF_RUN).where(*mine)).one_or_none()
    now = owner.moment_us(connection)
    if known is not None:
        connection.execute(update(RUNS).where(*mine).values(ended_us=None, outcome="", seen_us=now))
        return _run(known)
    run = Run(owner.pipeline, owner.epoch, mode, owner.pid, owner.host, now, now)
    values = {name: value for name, value in asdict(run).items() if name in _R}
    connection.execute(insert(RUNS), {**values, "samples": "[]"})
    for table in (RUNS, RUN_STEPS):
        old = (table.c.pipeline == owner.pipeline, table.c.epoch <= owner.epoch - RUNS_MAX)
        connection.execute(delete(table).where(*old))
    return run


def note(connection: Connection, run: Run) -> None:
    """How far the run has come."""
    connection.execute(
        _UPDATE,
        {
            "of": run.pipeline,
            "held": run.epoch,
            "by": run.mode,
            "read": run.rows,
            "taken": run.steps,
            "lately": json.dumps([astuple(each) for each in run.samples], separators=(",", ":")),
        },
    )
    if run.views:
        mine = (_S.pipeline == run.pipeline, _S.epoch == run.epoch, _S.mode == run.mode)
        views = json.dumps(run.views, separators=(",", ":"))
        if not connection.execute(update(RUN_STEPS).where(*mine).values(views=views)).rowcount:
            own = {"pipeline": run.pipeline, "epoch": run.epoch, "mode": run.mode}
            connection.execute(insert(RUN_STEPS).values(**own, views=views))


def end(connection: Connection, run: Run, outcome: str) -> None:
    """The run is over."""
    mine = (_R.pipeline == run.pipeline, _R.epoch == run.epoch, _R.mode == run.mode)
    now = moment_us(connection)
    connection.execute(update(RUNS).where(*mine).values(ended_us=now, seen_us=now, outcome=outcome))


def recent(connection: Connection, *, pipeline: str | None = None, limit: int = 20) -> list[Run]:
    """The last runs, of one pipeline if given, the newest first."""
    owned = and_(_O.pipeline == _R.pipeline, _O.epoch == _R.epoch, _O.holder.is_not(None))
    query = select(RUNS, _O.renewed_us, _O.lease_us, _S.views).outerjoin(OWNER, owned).outerjoin(RUN_STEPS, _OF_RUN)
    if pipeline is not None:
        query = query.where(_R.pipeline == pipeline)
    found = connection.execute(query.order_by(_R.started_us.desc(), _R.epoch.desc()).limit(limit)).all()
    now = moment_us(connection)
    return [_run(row, row.renewed_us or 0, row.lease_us or 0, now) for row in found]


def _run(row: Row[Any], renewed_us: int = 0, lease_us: int = 0, read_us: int = 0) -> Run:
    return Run(
        row.pipeline,
        row.epoch,
        row.mode,
        row.pid,
        row.host,
        row.started_us,
        max(row.seen_us, renewed_us),
        row.ended_us,
        row.outcome,
        row.rows,
        row.steps,
        tuple(Sample(*each) for each in json.loads(row.samples)),
        {view: ViewSteps(*each) for view, each in json.loads(row.views or "{}").items()},
        lease_us,
        read_us,
    )
