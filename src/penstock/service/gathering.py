"""Bodies that wait for the disk together: while one group is written, the next one gathers.

A wait for the disk takes as long for one event as for hundreds. So whoever comes while it lasts is stored with the next
one: nobody waits for company, and the more there are, the more go together.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from penstock.service.posting import Posted, post_together
from penstock.service.service import Service
from penstock.service.work import busy

WAITING_MAX = 4096
"""So many bodies may wait, of all topics; more are told to come back."""
GROUP_BYTES_MAX = 8 << 20
"""A group ends with the body that makes it so large."""


@dataclass(frozen=True)
class _Waiting:
    """A body, and who waits for what becomes of it."""

    body: bytes
    since: float
    answer: asyncio.Future[Posted]


class Gathering:
    """Stores bodies, in the order in which they came, group by group. It belongs to the event loop."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._waiting: dict[str, list[_Waiting]] = {}
        """By topic, for as long as a group of it is under way."""
        self._under_way: set[asyncio.Task[None]] = set()
        self._count = 0

    async def post(self, topic: str, body: bytes) -> Posted:
        """Where the events of a body of JSON lines are, once they are on disk; raises why they are not.

        RequestRefused (503) if the time for a request is over: they may be stored nevertheless.
        """
        if self._count >= WAITING_MAX:
            raise busy("more is sent than can be stored at the moment")
        loop = asyncio.get_running_loop()
        waiting = _Waiting(body, loop.time(), loop.create_future())
        if topic in self._waiting:
            self._waiting[topic].append(waiting)
        else:
            self._waiting[topic] = [waiting]
            task = loop.create_task(self._store_all(topic))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
        self._count += 1
        try:
            return await waiting.answer
        finally:
            self._count -= 1

    async def _store_all(self, topic: str) -> None:
        try:
            while group := self._next_group(topic):
                await self._store(topic, group)
        finally:
            for each in self._waiting.pop(topic):
                if not each.answer.done():
                    each.answer.set_exception(busy("the service stops"))

    def _next_group(self, topic: str) -> list[_Waiting]:
        """Those who still wait, up to so many bytes."""
        waiting = [each for each in self._waiting[topic] if not each.answer.done()]
        size = count = 0
        while count < len(waiting) and size < GROUP_BYTES_MAX:
            size += len(waiting[count].body)
            count += 1
        self._waiting[topic] = waiting[count:]
        return waiting[:count]

    async def _store(self, topic: str, group: list[_Waiting]) -> None:
        service = self._service
        left = service.seconds - (asyncio.get_running_loop().time() - group[0].since)
        bodies = [each.body for each in group]
        try:
            outcomes = await service.appends.run(
                lambda: post_together(service.topic_to_write(topic), bodies), seconds=max(left, 0.0)
            )
        except Exception as error:
            outcomes = [error] * len(group)
        for each, outcome in zip(group, outcomes, strict=True):
            if each.answer.done():  # Its client is gone.
                continue
            if isinstance(outcome, Exception):
                each.answer.set_exception(outcome)
            else:
                each.answer.set_result(outcome)
