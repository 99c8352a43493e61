"""One reader for all who follow a topic: what was appended is read once, written as JSON once, and handed to everybody.

That holds for those who are at the head. Whoever is further back reads by itself, at its own pace, until it is there
too. Nothing is kept for a slow one but the last few pages, which are the same for all.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.log.topic import Topic
from penstock.service.answers import dumps
from penstock.service.records import STREAM_ROWS, Cut, read_page
from penstock.service.work import busy

if TYPE_CHECKING:
    from penstock.service.service import Service

_log = logging.getLogger("penstock.service")

ALIVE_SECONDS = 15.0
LEAVES_MAX = 64
LEAVES_BYTES_MAX = 4 << 20
"""So much is kept for those who are a little behind; the newest leaf always is."""

Shape = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""What a record looks like to its reader."""


@dataclass(frozen=True)
class Leaf:
    """Records that follow a cut, as their readers get them."""

    at: Cut
    after: Cut
    ids: tuple[str, ...]
    data: tuple[bytes, ...]
    """Each record as JSON."""

    @property
    def size(self) -> int:
        return sum(map(len, self.data))

    @cached_property
    def events(self) -> bytes:
        """All of them as server-sent events."""
        return b"".join(
            b"id: %b\nevent: record\ndata: %b\n\n" % (each.encode(), data)
            for each, data in zip(self.ids, self.data, strict=True)
        )

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """Each of them as a message of a WebSocket."""
        return tuple(each.decode() for each in self.data)


def read_leaf(topic: Topic, at: Cut, shape: Shape, until: Cut | None = None) -> Leaf:
    """The records that arrived next, up to but without `until`; none if there are none yet."""
    page = read_page(topic, at, STREAM_ROWS, until)
    ids = tuple(str(each["id"]) for each in page.records)
    return Leaf(at, page.after, ids, tuple(dumps(shape(each)) for each in page.records))


class Feeds:
    """The feeds of one service, each for as long as somebody listens. They belong to the event loop."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._feeds: dict[tuple[object, Shape], _Feed] = {}
        self._turns = asyncio.Semaphore(service.settings.threads)
        """Those who read by themselves wait for one another here: there may be more than may wait for a thread."""

    async def follow(self, topic: Topic, at: Cut, shape: Shape) -> AsyncIterator[Leaf | None]:
        """Records as they come, from a cut on, until the service stops; None is a sign of life.

        Raises what keeps the topic from being read: TopicDeleted, OffsetOutOfRange.
        """
        bell = self._service.bell
        with self._joined(topic, shape) as feed:
            while not bell.is_stopping:
                leaf = feed.leaf_after(at)
                if leaf is None:
                    if feed.is_at_head(at):
                        if await feed.turn():
                            yield None
                        continue
                    until = {number: max(offset, at.get(number, 0)) for number, offset in (feed.head or {}).items()}
                    async with self._turns:
                        leaf = await self._service.log_reads.run(read_leaf, topic, at, shape, until)
                if leaf.data:
                    yield leaf
                at = leaf.after

    @contextmanager
    def _joined(self, topic: Topic, shape: Shape) -> Iterator[_Feed]:
        key = (topic.definition.id, shape)
        feed = self._feeds.get(key)
        if feed is None or feed.is_over:
            feed = self._feeds[key] = _Feed(self._service, topic, shape)
        feed.listeners += 1
        try:
            yield feed
        finally:
            feed.listeners -= 1
            if not feed.listeners:
                feed.close()
                if self._feeds.get(key) is feed:
                    del self._feeds[key]


class _Feed:
    """Reads one topic at its head, for all who are there."""

    def __init__(self, service: Service, topic: Topic, shape: Shape) -> None:
        self._service = service
        self._topic = topic
        self._shape = shape
        self._leaves: OrderedDict[tuple[tuple[int, int], ...], Leaf] = OrderedDict()
        self._bytes = 0
        self._turn = asyncio.Event()
        self.head: Cut | None = None
        """Where the next leaf begins; None until it is known."""
        self.error: PenstockError | None = None
        """Why it reads no more."""
        self.listeners = 0
        self._task = asyncio.get_running_loop().create_task(self._run())

    def leaf_after(self, at: Cut) -> Leaf | None:
        """The records that follow this cut, if they are at hand."""
        return self._leaves.get(_key(at))

    def is_at_head(self, at: Cut) -> bool:
        """Whether there is nothing after this cut that the feed knows of."""
        return self.head is None or all(offset >= self.head.get(number, 0) for number, offset in at.items())

    async def turn(self) -> bool:
        """Returns when there is something new, and True now and then if there is not. Raises what went wrong."""
        if self.error is None:
            before = self.head
            await self._turn.wait()
            if self.error is None:
                return self.head is before
        assert self.error is not None
        raise self.error

    @property
    def is_over(self) -> bool:
        """Whether it reads no more."""
        return self.error is not None or self._task.done()

    def close(self) -> None:
        """Nobody listens any more."""
        self._task.cancel()

    async def _run(self) -> None:
        bell, work = self._service.bell, self._service.log_reads
        try:
            with bell.listening(partition.signal for partition in self._topic.partitions) as rung:
                self.head = await work.run(self._topic.end)
                self._tell()
                while not bell.is_stopping:
                    rung.clear()
                    leaf = await work.run(read_leaf, self._topic, self.head, self._shape)
                    if leaf.after != self.head:
                        self._keep(leaf)
                        self._tell()
                        continue
                    try:
                        await asyncio.wait_for(rung.wait(), ALIVE_SECONDS)
                    except TimeoutError:
                        self._tell()
        except PenstockError as error:
            self.error = error
        except Exception:
            _log.exception("serve: topic %s cannot be read", self._topic.name)
            self.error = busy(f"topic {self._topic.name!r} cannot be read at the moment")
        finally:
            self._tell()

    def _keep(self, leaf: Leaf) -> None:
        self._leaves[_key(leaf.at)] = leaf
        self._bytes += leaf.size
        while len(self._leaves) > LEAVES_MAX or (self._bytes > LEAVES_BYTES_MAX and len(self._leaves) > 1):
            _, oldest = self._leaves.popitem(last=False)
            self._bytes -= oldest.size
        self.head = leaf.after

    def _tell(self) -> None:
        self._turn.set()
        self._turn = asyncio.Event()


def _key(cut: Cut) -> tuple[tuple[int, int], ...]:
    return tuple(sorted(cut.items()))
