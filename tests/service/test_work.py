"""Blocking work is bounded: in threads, in what may wait, and in time."""

from __future__ import annotations

import asyncio
import threading

import httpx
import pytest
import sqlalchemy as sa

from penstock.errors import RequestRefused
from penstock.service.work import Work, limited
from penstock.views.store import Store, open_store
from tests.eventually import LIMIT_SECONDS
from tests.service.site import Site

FOR_EVER = {
    "sqlite": "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n",
    "postgresql": "SELECT pg_sleep(3600)",
}


def test_work_that_takes_too_long_counts_until_it_ends() -> None:
    work, release = Work(1, 0.2, waiting=16), threading.Event()

    async def ask() -> None:
        with pytest.raises(RequestRefused, match=r"within 0\.2 s") as caught:
            await work.run(release.wait)
        assert (caught.value.status, caught.value.is_retryable) == (503, True)
        with pytest.raises(RequestRefused):
            await work.run(lambda: None)  # The only thread is still busy.
        release.set()
        assert await work.run(lambda: 7, seconds=3600) == 7

    asyncio.run(ask())
    work.close()


def test_more_than_can_wait_is_told_to_come_back() -> None:
    work, release = Work(1, 3600, waiting=16), threading.Event()

    async def ask() -> None:
        waiting = [asyncio.create_task(work.run(release.wait)) for _ in range(1 + 16)]
        await asyncio.sleep(0)
        with pytest.raises(RequestRefused, match="more is asked"):
            await work.run(lambda: None)
        release.set()
        await asyncio.gather(*waiting)
        assert await work.run(lambda: 7) == 7

    asyncio.run(ask())
    work.close()


def test_an_endless_statement_is_interrupted_and_the_next_one_is_not(url: str) -> None:
    with open_store(url) as store:
        with pytest.raises(RequestRefused, match="the database found no answer"):
            run(store, FOR_EVER[url.partition(":")[0]], 0.3)
        assert run(store, "SELECT 1", 3600) == 1


def run(store: Store, statement: str, seconds: float) -> object:
    with store.snapshot() as snapshot, limited(snapshot, seconds):
        return snapshot.connection.execute(sa.text(statement)).scalar()


def test_a_slow_request_is_answered_with_later(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.log.folder_log import FolderLog

    release = threading.Event()
    monkeypatch.setattr(FolderLog, "topics", lambda *given, **named: release.wait(LIMIT_SECONDS))
    with site.limited(request_timeout="300ms").serving() as client:
        answer = client.get("/topics")
        release.set()
        assert isinstance(answer, httpx.Response)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert client.get("/health").status_code == 200
