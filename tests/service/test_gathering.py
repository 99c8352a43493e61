"""Bodies that come while the disk is busy are stored together, in their order; nobody waits without end."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from penstock.errors import EventsRefused, RequestRefused, UnknownTopic
from penstock.log.folder_partition import FolderPartition
from penstock.service import gathering
from penstock.service.gathering import Gathering
from penstock.service.posting import Posted
from penstock.service.service import Service
from tests.eventually import LIMIT_SECONDS
from tests.service.site import Site


class SlowDisk:
    """Appends wait until they are let through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.appends: list[int] = []
        self.is_busy = threading.Event()
        self.may_go_on = threading.Event()
        real = FolderPartition.append

        def slow(partition: FolderPartition, batch: Any, **named: Any) -> Any:
            self.appends.append(batch.num_rows)
            self.is_busy.set()
            assert self.may_go_on.wait(LIMIT_SECONDS)
            return real(partition, batch, **named)

        monkeypatch.setattr(FolderPartition, "append", slow)


def event(number: int) -> bytes:
    return json.dumps({"url": f"/{number}"}).encode()


def run(site: Site, body: Any) -> None:
    """Runs `body(gathering)` with a service that is there, in an event loop."""

    async def with_service() -> None:
        service = Service(site.settings)
        try:
            await body(Gathering(service))
        finally:
            await asyncio.to_thread(service._close)

    asyncio.run(with_service())


async def started(*bodies: Coroutine[Any, Any, Posted]) -> list[asyncio.Task[Posted]]:
    tasks = [asyncio.create_task(each) for each in bodies]
    await asyncio.sleep(0)
    return tasks


def test_those_who_come_while_the_disk_is_busy_are_stored_with_one_append(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk(monkeypatch)

    async def body(gathered: Gathering) -> None:
        first = await started(gathered.post("access", event(0)))
        await asyncio.to_thread(disk.is_busy.wait)
        bodies = [gathered.post("access", event(n)) for n in range(1, 50)]
        rest = await started(*bodies, gathered.post("access", b'{"url": 7'), gathered.post("nope", event(1)))
        disk.may_go_on.set()
        *good, bad, unknown = await asyncio.gather(*first, *rest, return_exceptions=True)
        assert isinstance(bad, EventsRefused)
        assert isinstance(unknown, UnknownTopic)
        starts = [each.ranges for each in good if isinstance(each, Posted)]
        assert starts == [((0, 10 + n, 11 + n),) for n in range(50)]  # Each its own, in the order in which they came.

    run(site, body)
    assert disk.appends == [1, 49]


def test_a_group_is_not_larger_than_it_may_be(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SlowDisk(monkeypatch)
    monkeypatch.setattr(gathering, "GROUP_BYTES_MAX", 3 * len(event(1)))

    async def body(gathered: Gathering) -> None:
        tasks = await started(*(gathered.post("access", event(n)) for n in range(7)))
        disk.may_go_on.set()
        assert [each.stored for each in await asyncio.gather(*tasks)] == [1] * 7

    run(site, body)
    assert disk.appends == [3, 3, 1]


def test_whoever_has_left_is_not_stored_and_the_others_are(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SlowDisk(monkeypatch)

    async def body(gathered: Gathering) -> None:
        first = await started(gathered.post("access", event(0)))
        await asyncio.to_thread(disk.is_busy.wait)
        stays, leaves = await started(gathered.post("access", event(1)), gathered.post("access", event(2)))
        leaves.cancel()
        await asyncio.sleep(0)
        disk.may_go_on.set()
        assert [each.stored for each in await asyncio.gather(*first, stays)] == [1, 1]

    run(site, body)
    assert disk.appends == [1, 1]


def test_requests_give_up_while_the_disk_does_not_answer(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SlowDisk(monkeypatch)

    async def body(gathered: Gathering) -> None:
        first = await started(gathered.post("access", event(0)))
        rest = await started(*(gathered.post("access", event(n)) for n in range(3)))
        answers = await asyncio.gather(*first, *rest, return_exceptions=True)
        assert [each.status for each in answers if isinstance(each, RequestRefused)] == [503] * 4
        disk.may_go_on.set()

    run(site.limited(request_timeout="500ms"), body)


def test_more_than_may_wait_are_told_to_come_back(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SlowDisk(monkeypatch)
    monkeypatch.setattr(gathering, "WAITING_MAX", 2)

    async def body(gathered: Gathering) -> None:
        tasks = await started(*(gathered.post("access", event(n)) for n in range(3)))
        with pytest.raises(RequestRefused, match="more is sent"):
            await tasks[2]
        disk.may_go_on.set()
        await asyncio.gather(*tasks[:2])
        assert (await gathered.post("access", event(3))).stored == 1

    run(site, body)
