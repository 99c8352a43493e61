"""Runs are killed between a step and the log: every row that is stored was told once, and no other."""

from __future__ import annotations

import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.log.folder_log import FolderLog
from penstock.modes.topics import make_topics
from penstock.views.store import open_store
from tests.alerts.waiting import entries
from tests.alerts.worker import MAIL, Job, accounts, work
from tests.conftest import DRIVERS
from tests.faults.pipeline_storm import process_context
from tests.faults.pipeline_worker import Gateway, Point, Strike

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
pytestmark = [pytest.mark.spark, DRIVERS]


@pytest.mark.parametrize(
    ("point", "count"),
    [("after", 1), *(pytest.param(point, 4, marks=pytest.mark.long) for point in ("in", "after", "changelog"))],
)
def test_a_kill_at_any_point_tells_each_row_once(
    tmp_path: Path, spark: SparkSession, dice: Random, point: Point, count: int
) -> None:
    job = Job(tmp_path / "log", f"sqlite:{tmp_path}/views.db", Gateway.of(spark))
    with FolderLog(job.log, background=False) as log:
        make_topics(accounts(), log)
    minute = kills = 0
    while kills < count:
        with FolderLog(job.log, background=False) as log:
            for _ in range(6):
                minute += 1
                at = NOON + timedelta(minutes=minute)
                topic = log.topic("events")
                rows = pa.Table.from_pylist([{"time": at, "account": dice.choice("abc")}], schema=topic.schema)
                topic.append(rows, arrived=pa.array([at], pa.timestamp("us", "UTC")))
        kills += run(job, Strike(point, dice.randint(1, 3), dice.random())) == -signal.SIGKILL
        assert minute < 60 * count, "nothing was struck"
    assert run(job) == 0
    with FolderLog(job.log, background=False) as log:
        told = [(each["time"], each["text"]) for each in log.topic("alarms").slice().to_pylist()]
    with open_store(job.url) as store:
        found = entries(store)
        mails = [line for each in found if each.receiver == MAIL for line in each.text.splitlines()]
        rows_now: dict[str, int] = dict(store.query("SELECT account, items FROM totals")[1])
    # Steps take two records: a key may go up by two in one, and is then told once. The last of each was told.
    assert len({*told}) == len(told)
    assert sorted(text for _, text in told) == sorted(mails)
    # The alert is about accounts with more than one item.
    assert {f"{account} {items}" for account, items in rows_now.items() if items > 1} <= {text for _, text in told}
    assert sum(rows_now.values()) == minute
    assert [each.state for each in found if each.receiver == MAIL] == ["waiting"] * (len(found) // 2)


def run(job: Job, strike: Strike | None = None) -> int:
    process = process_context().Process(target=work, args=(Job(job.log, job.url, job.gateway, strike),))
    process.start()
    process.join()
    code: int | None = process.exitcode
    assert code is not None
    return code
