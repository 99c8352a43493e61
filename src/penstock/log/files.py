"""How bytes reach the disk: the write rules, in one place.

A new file is written, synced, and its directory synced before anything refers to it. A file is replaced by a
synced temporary file in the same directory and a rename. A write may be short, and is continued. Whoever breaks
one of these rules loses acknowledged records in a power cut, which the tests do for real.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import google_crc32c

from penstock.access import make_folder
from penstock.errors import CorruptionError
from penstock.log.open_files import open_fd, with_descriptor

TEMPORARY_SUFFIX = ".tmp"
"""A file of this name was being written when its process died; anyone holding the lock may delete it."""

WRITE_BYTES_MAX = 1 << 30
"""Linux moves at most 2 GiB a call; staying below keeps every length in range."""


def sync_data(fd: int) -> None:
    """Returns once the file's bytes and length are on disk."""
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # fsync alone stops at the drive's cache there.
    else:
        os.fdatasync(fd)


def sync_directory(directory: Path) -> None:
    """Returns once the names in the directory are on disk: without it a power cut forgets a new file."""
    fd = open_fd(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_directory(directory: Path) -> None:
    """Makes the directory and those above it, each durable in its parent. Harmless if it is there."""
    if directory.is_dir():
        return
    make_directory(directory.parent)
    with suppress(FileExistsError):
        make_folder(directory)
    sync_directory(directory.parent)


def write_all(fd: int, chunks: Sequence[bytes | memoryview], position: int) -> int:
    """Writes all chunks at the position, however short single writes turn out. Returns the position after them."""
    pending = [view for view in (memoryview(chunk).cast("B") for chunk in chunks) if len(view)]
    while pending:
        written = os.pwritev(fd, pending[:1024], position)
        if written == 0:
            raise OSError(28, "the disk took no bytes")
        position += written
        while pending and written >= len(pending[0]):
            written -= len(pending.pop(0))
        if written:
            pending[0] = pending[0][written:]
    return position


def read_exactly(fd: int, length: int, position: int) -> bytes:
    """Reads `length` bytes at the position, fewer only where the file ends."""
    chunks: list[bytes] = []
    while length > 0:
        chunk = os.pread(fd, min(length, WRITE_BYTES_MAX), position)
        if not chunk:
            break
        chunks.append(chunk)
        length -= len(chunk)
        position += len(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def create_file(path: Path, content: bytes) -> None:
    """Makes a new durable file. A crash leaves no file, part of it, or all of it: the reader must tell."""
    fd = open_fd(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        write_all(fd, [content], 0)
        sync_data(fd)
    finally:
        os.close(fd)
    sync_directory(path.parent)


def replace_file(path: Path, content: bytes) -> None:
    """Replaces a file, or makes it. A crash leaves the old content or the new, never a mixture."""
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    try:
        fd = open_fd(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            write_all(fd, [content], 0)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    sync_directory(path.parent)


def publish_file(temporary: Path, path: Path) -> None:
    """Gives a finished temporary file its name, durably."""
    fd = open_fd(temporary, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(temporary, path)
    sync_directory(path.parent)


def write_document(path: Path, document: dict[str, Any]) -> None:
    """Replaces a small JSON file that carries its own checksum."""
    body = json.dumps(document, indent=1, sort_keys=True).encode()
    replace_file(path, body + b"\ncrc32c " + format(google_crc32c.value(body), "08x").encode() + b"\n")


def read_document(path: Path) -> dict[str, Any]:
    """Reads what `write_document` wrote. FileNotFoundError if there is none, CorruptionError if it is damaged."""
    content = with_descriptor(path, path.read_bytes)
    body, mark, tail = content.rpartition(b"\ncrc32c ")
    if not mark or tail != format(google_crc32c.value(body), "08x").encode() + b"\n":
        raise CorruptionError(path, "its checksum does not match")
    document: dict[str, Any] = json.loads(body)
    return document


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Holds an exclusive lock on a file that is never deleted. Yields False if `wait` is off and another has it.

    The lock goes with the process: a killed holder lets go at once.
    """
    fd = open_fd(path, os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(fd)
