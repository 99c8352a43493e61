"""Where events wait on disk when they come faster than the log takes them (on_full="spill").

    <log>/spill/<topic>/<producer>-<number>.spill

Each frame of a file carries the id of its producer, its sequences and its checksums. A process that is killed leaves
its files behind, and the lock on them goes with it: the next producer of the topic finds them unlocked, and sends what
they hold under the old id and the old sequences, so that nothing is stored twice. Only the files of a named producer
are thrown away: it repeats everything that was not acknowledged, and what was spilled must not overtake what the
process had still in memory.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.log.files import make_directory
from penstock.produce.spill_file import Content, Header, SpillFile

logger = logging.getLogger("penstock.log")

SUFFIX = ".spill"
FILE_BYTES = 8 << 20
"""A file is left when it is larger, and deleted when all of it is in the log."""


class Spill:
    """The events of one producer that wait on disk, in the order they came. For one thread only.

    Nothing here is synced: these events are not acknowledged yet. They survive the death of the process, not a power
    cut. A frame is given out once (`take`), and forgotten when the log has it (`finish`).
    """

    def __init__(
        self, directory: Path, topic_id: str, *, is_repeated: bool = False, file_bytes: int = FILE_BYTES
    ) -> None:
        self.directory = directory
        self._is_repeated = is_repeated
        self.waiting: deque[Waiting] = deque()
        self._topic_id = bytes.fromhex(topic_id)
        self._file_bytes = file_bytes
        self._current: SpillFile | None = None
        self._files: set[SpillFile] = set()
        self._number = 0

    @property
    def is_holding(self) -> bool:
        """Whether the disk refused the last frame, so that it waits in memory: then do not `put` more."""
        return bool(self.waiting) and self.waiting[-1].is_held

    def put(self, content: Content, label: Any) -> bool:
        """Adds events behind all others. False if the disk took them not: they wait in memory then, in their place."""
        assert content.batch.num_rows == len(content.sequences) > 0, content
        try:
            if self._current is None or self._current.size >= self._file_bytes:
                self._leave_current()
                self._current = self._new_file(content.producer)
            position = self._current.size
            header = self._current.write(content, self._topic_id, is_repeated=self._is_repeated)
        except OSError as error:
            logger.warning("spill: %s takes no more events (%s); they wait in memory", self.directory, error)
            self._leave_current()
            self.waiting.append(Waiting.in_memory(content, label))
            return False
        self.waiting.append(Waiting.on_disk(self._current, position, header, label))
        return True

    def take(self) -> Waiting:
        """The next frame to send."""
        return self.waiting.popleft()

    def finish(self, frame: Waiting) -> None:
        """The log has this frame, or its sender was told that it failed: it is never sent again."""
        if frame.file is None or frame.header is None:
            return
        file = frame.file
        file.mark_done(frame.position, frame.header)
        file.unfinished -= 1
        if file.unfinished == 0 and (file is not self._current or not self.waiting):
            if file is self._current:
                self._current = None
            self._remove(file)

    def adopt(self) -> int:
        """Takes over what dead producers of this topic left, in front of everything. Returns how many events."""
        found: list[Waiting] = []
        for path in sorted(self.directory.glob("*" + SUFFIX)) if self.directory.is_dir() else ():
            file = SpillFile.adopt(path)
            if file is not None:
                self._files.add(file)
                frames = list(self._frames_of(file))
                found += frames
                if not frames:
                    self._remove(file)
        # A later sequence of the same producer in front would make the log take an earlier one for a duplicate.
        found.sort(key=lambda frame: (frame.header.producer, frame.header.first_sequence) if frame.header else ())
        self.waiting.extendleft(reversed(found))
        return sum(frame.rows for frame in found)

    def close(self) -> None:
        """Lets go of all files. What still waits is left to the next producer of the topic."""
        self._leave_current()
        self.let_go()

    def let_go(self) -> None:
        """Closes all files and deletes none."""
        while self._files:
            self._files.pop().close()

    def _new_file(self, producer: bytes) -> SpillFile:
        make_directory(self.directory)
        while True:
            self._number = max(self._number + 1, time.time_ns())
            file = SpillFile.create(self.directory / f"{producer.hex()}-{self._number:020d}{SUFFIX}")
            if file is not None:
                self._files.add(file)
                return file

    def _leave_current(self) -> None:
        if self._current is not None and self._current.unfinished == 0:
            self._remove(self._current)
        self._current = None

    def _remove(self, file: SpillFile) -> None:
        self._files.discard(file)
        file.remove()

    def _frames_of(self, file: SpillFile) -> Iterator[Waiting]:
        foreign = 0
        for position, header in file.scan():
            if header.topic_id != self._topic_id:
                foreign += header.rows
            elif not header.is_done and not header.is_repeated:
                yield Waiting.on_disk(file, position, header)
        if foreign:
            logger.warning("spill: %s holds %d events of a topic that was deleted; left out", file.path, foreign)


class Waiting:
    """One frame that waits for its turn. `label` is the sender's, and None for frames of a dead producer."""

    def __init__(self, rows: int, length: int, label: Any) -> None:
        self.rows = rows
        self.length = length
        self.label = label
        self.file: SpillFile | None = None
        self.position = 0
        self.header: Header | None = None
        self._held: Content | None = None

    @classmethod
    def on_disk(cls, file: SpillFile, position: int, header: Header, label: Any = None) -> Waiting:
        waiting = cls(header.rows, header.length, label)
        waiting.file, waiting.position, waiting.header = file, position, header
        file.unfinished += 1
        return waiting

    @classmethod
    def in_memory(cls, content: Content, label: Any) -> Waiting:
        """A frame that the disk did not take."""
        waiting = cls(content.batch.num_rows, content.batch.nbytes, label)
        waiting._held = content
        return waiting

    @property
    def is_held(self) -> bool:
        return self.file is None

    def load(self) -> Content:
        """The events. SpillDamaged if their bytes are not those that were written."""
        if self._held is not None:
            content, self._held = self._held, None
            return content
        assert self.file is not None
        assert self.header is not None
        return self.file.read(self.position, self.header)
