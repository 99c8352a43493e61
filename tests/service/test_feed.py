"""Every listener of a topic gets every record once and in order, wherever it starts and however slow it is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import TopicDeleted
from penstock.log.topic import Topic
from penstock.service import feed as module
from penstock.service.feed import Leaf
from penstock.service.records import Cut, read_page
from penstock.service.service import Service
from penstock.service.topics import as_it_is
from tests.eventually import LIMIT_SECONDS, eventually
from tests.service.site import Site


def append(topic: Topic, *numbers: int) -> None:
    topic.append(pa.table({"n": pa.array(numbers, pa.int64())}))


async def heard(
    service: Service, topic: Topic, at: Cut, count: int, then: Callable[[Leaf], Awaitable[Any]] | None = None
) -> list[dict[str, Any]]:
    """That many records, as a listener receives them that awaits `then` after each leaf."""
    found: list[dict[str, Any]] = []
    async with aclosing(service.feeds.follow(topic, at, as_it_is)) as following:  # type: ignore[type-var]
        async for leaf in following:
            if leaf is not None:
                found += map(json.loads, leaf.data)
                if then is not None:
                    await then(leaf)
            if len(found) >= count:
                break
    return found


async def joined(service: Service, listeners: int) -> None:
    """Waits until that many listeners have joined the only feed, and it knows the end of its topic."""

    def have_joined() -> bool:
        return [(each.listeners, each.head is None) for each in service.feeds._feeds.values()] == [(listeners, False)]

    await asyncio.to_thread(eventually, have_joined)


def run(site: Site, body: Callable[[Service, Topic], Coroutine[Any, Any, None]]) -> None:
    async def with_service() -> None:
        service = Service(site.settings)
        await service.start()
        try:
            await asyncio.wait_for(body(service, service.log.topic("loose")), LIMIT_SECONDS)
        finally:
            await service.close()

    asyncio.run(with_service())


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each read found."""
    found: list[int] = []

    def counted(*given: Any) -> Any:
        page = read_page(*given)
        found.append(len(page.records))
        return page

    monkeypatch.setattr(module, "read_page", counted)
    return found


def test_those_at_the_head_share_one_read_and_the_same_bytes(site: Site, reads: list[int]) -> None:
    async def body(service: Service, topic: Topic) -> None:
        leaves: list[list[Leaf]] = [[] for _ in range(50)]

        async def listen(mine: list[Leaf]) -> list[dict[str, Any]]:
            async def keep(leaf: Leaf) -> None:
                mine.append(leaf)

            return await heard(service, topic, topic.end(), 20, keep)

        listening = [asyncio.create_task(listen(each)) for each in leaves]
        await joined(service, 50)
        for number in range(20):
            append(topic, number)
            await asyncio.sleep(0.01)
        found = await asyncio.gather(*listening)
        assert all([each["event"]["n"] for each in one] == list(range(20)) for one in found)
        assert len({id(leaf) for one in leaves for leaf in one}) == len(leaves[0])

    run(site, body)
    assert sum(reads) == 20


def test_listeners_at_different_places_all_get_all_that_follows(site: Site) -> None:
    async def body(service: Service, topic: Topic) -> None:
        for number in range(0, 300, 3):
            append(topic, number, number + 1, number + 2)
        cuts = [topic.cut({0: 0, 1: 0, 2: 0}, max_rows=rows) for rows in (1, 2, 50, 150, 299)]
        cuts += [{0: 0, 1: 0, 2: 0}, topic.end()]
        listening = [
            asyncio.create_task(heard(service, topic, cut, 400 - sum(cut.values()), then))
            for cut in cuts
            for then in (None, lambda _: asyncio.sleep(0.01))
        ]
        for number in range(300, 400):
            append(topic, number)
            await asyncio.sleep(0.003)
        for one, cut in zip(await asyncio.gather(*listening), [each for each in cuts for _ in range(2)], strict=True):
            offsets = {number: [each["offset"] for each in one if each["partition"] == number] for number in cut}
            assert offsets == {number: list(range(start, topic.end()[number])) for number, start in cut.items()}

    run(site, body)


def test_nothing_is_kept_for_a_slow_listener_and_it_misses_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAVES_BYTES_MAX", 300)

    async def body(service: Service, topic: Topic) -> None:
        may_go_on = asyncio.Event()
        leaves: asyncio.Queue[Leaf] = asyncio.Queue()
        slow = asyncio.create_task(heard(service, topic, topic.end(), 100, lambda _: may_go_on.wait()))
        quick = asyncio.create_task(heard(service, topic, topic.end(), 100, leaves.put))
        await joined(service, 2)
        for number in range(100):
            append(topic, number)
            await leaves.get()
        assert [each["event"]["n"] for each in await quick] == list(range(100))
        [feed] = service.feeds._feeds.values()
        assert feed._bytes == sum(each.size for each in feed._leaves.values()) <= 300
        may_go_on.set()
        assert [each["event"]["n"] for each in await slow] == list(range(100))
        assert not service.feeds._feeds  # The last one out.

    run(site, body)


def test_a_listener_that_leaves_takes_nothing_from_the_others(site: Site) -> None:
    async def body(service: Service, topic: Topic) -> None:
        seen: asyncio.Queue[Leaf] = asyncio.Queue()
        leaves = asyncio.create_task(heard(service, topic, topic.end(), 9, seen.put))
        stays = asyncio.create_task(heard(service, topic, topic.end(), 2))
        await joined(service, 2)
        append(topic, 1)
        await seen.get()
        leaves.cancel()
        append(topic, 2)
        assert [each["event"]["n"] for each in await stays] == [1, 2]

    run(site, body)


def test_all_listeners_learn_that_a_topic_is_deleted_and_created_again(site: Site) -> None:
    async def body(service: Service, topic: Topic) -> None:
        listening = [asyncio.create_task(heard(service, topic, topic.end(), 1)) for _ in range(3)]
        await joined(service, 3)
        with site.log() as log:
            log.delete("loose")
            log.create("loose", "n bigint")
        answers = await asyncio.gather(*listening, return_exceptions=True)
        assert [type(each) for each in answers] == [TopicDeleted] * 3
        new = service.log.topic("loose")
        append(new, 5)
        assert [each["event"]["n"] for each in await heard(service, new, {0: 0}, 1)] == [5]

    run(site, body)
