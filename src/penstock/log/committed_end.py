"""Where a partition ends, for everybody: one small file that is rewritten in place after each commit.

Writers learn from it where to go on, readers how far they may read, and sleepers are woken by its change (inotify).
It is only a hint: it is not synced, and a power cut may leave an old one. Whoever opens a partition compares it with
the segment file, and rebuilds it from there if it is missing, damaged or behind.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import NamedTuple

import google_crc32c

from penstock.log.files import write_all
from penstock.log.open_files import PooledFile

_BODY = struct.Struct("<8sqQqqqqI")
_CRC = struct.Struct("<I")
_MAGIC = b"PnEnd\x00\x00\x01"


class End(NamedTuple):
    """The committed end of a partition."""

    segment_base: int
    """Base offset of the active segment."""
    segment_id: int
    position: int
    """Bytes of the active segment that readers may see."""
    durable_position: int
    """Bytes of it that are known to be on disk; less than `position` only with durability="os"."""
    offset: int
    """The offset that the next record will get."""
    arrived_us: int
    """The greatest arrival so far; no later record has a smaller one."""
    epoch: int


class CommittedEnd(PooledFile):
    """The file `end` of one partition. One writer at a time, who holds the partition's lock; any number of readers."""

    def __init__(self, path: Path, on_open: Callable[[FileIO], object] | None = None) -> None:
        super().__init__(path, is_made=True, on_open=on_open)

    def read(self) -> End | None:
        """None if the file is empty or damaged: then take the lock and recover."""
        file = self.open()
        for _ in range(3):  # A reader may meet a writer halfway.
            content = os.pread(file.fileno(), _BODY.size + _CRC.size, 0)
            if len(content) == _BODY.size + _CRC.size:
                body = content[: _BODY.size]
                magic, *fields = _BODY.unpack(body)
                if magic == _MAGIC and _CRC.pack(google_crc32c.value(body)) == content[_BODY.size :]:
                    return End(*fields)
        return None

    def write(self, end: End) -> None:
        body = _BODY.pack(_MAGIC, *end)
        file = self.open()
        write_all(file.fileno(), [body + _CRC.pack(google_crc32c.value(body))], 0)
