"""A small shared document that any process may change, and no frozen process can hold up.

A lock would be simpler, but a process that is stopped (Ctrl-Z, SIGSTOP, a debugger) while it holds one stops everybody
else as well. So each version of the document is a file of its own, `NAME-000000000042.json`, made by a hard link, which
fails if another process made that version first. The newest version is the truth; older ones are deleted.
"""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from penstock.access import open_file
from penstock.log.files import make_directory, read_document, sync_directory, write_document

Document = dict[str, Any]

TURN_SECONDS = 0.25
"""How long a writer lets others go first. Whoever takes longer is frozen, or hangs in the disk."""

DEBRIS_SECONDS = 60
"""A draft this old was left by a process that died; deleting one that is still needed only costs another attempt."""


class VersionedDocument:
    """One document, changed by compare-and-swap.

    What `update` returned is on disk. A crash leaves the version before or the version after, never a mixture. Any
    number of threads and processes at once, each with an object of its own. `directory` holds the versions and nothing
    else of ours; drafts are written in `workshop`, on the same file system, so that watching `directory` wakes once
    for each new version.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        *,
        workshop: Path,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.directory = directory
        self.name = name
        self._workshop = workshop
        self._newest_seen = 0
        self._patience = TURN_SECONDS
        self._monotonic = monotonic
        self._sleep = sleep

    def read(self) -> tuple[int, Document]:
        """The newest version and its number; 0 and nothing if there was none yet. CorruptionError if it is damaged."""
        for _ in range(1000):
            newest = max(self._versions(), default=0)
            # A listing may miss a name that came while it was made: never go back, and look for a successor.
            if newest < self._newest_seen or self._path(newest + 1).exists():
                continue
            if newest == 0:
                return 0, {}
            with suppress(FileNotFoundError):  # Deleted for a newer one: look again.
                document = read_document(self._path(newest))
                self._newest_seen = newest
                return newest, document
        self._newest_seen = 0  # Somebody removed the files by hand. What is there now is the truth.
        return self.read()

    def version(self) -> int:
        """The number of the newest version, without reading it."""
        return max(self._versions(), default=0)

    def update(self, change: Callable[[Document], Document]) -> tuple[int, Document]:
        """Applies `change` to the newest version, again if another process came first, and returns what is there then.

        `change` gets a document it may not keep, and returns a new one, or the same object if nothing is to change. It
        must be harmless to apply twice. If it raises, nothing was changed.
        """
        with self._turn():
            while True:
                version, document = self.read()
                changed = change(document)
                if changed is document or self._swap(version + 1, changed):
                    return version + (changed is not document), changed

    def sweep(self) -> None:
        """Deletes drafts that dead processes left behind."""
        for draft in self._workshop.glob(f"{self.name}.*.draft*"):
            with suppress(FileNotFoundError):
                if draft.stat().st_mtime < time.time() - DEBRIS_SECONDS:
                    draft.unlink()

    def _swap(self, version: int, document: Document) -> bool:
        """Makes the version. False if another process made it, or a later one, before."""
        draft = self._workshop / f"{self.name}.{os.getpid()}-{uuid.uuid4().hex[:12]}.draft"
        try:
            try:
                write_document(draft, document)
                os.link(draft, self._path(version))
            except FileExistsError:
                return False
            except FileNotFoundError:  # Our draft was swept away while we were frozen; or the folder is gone for good.
                if not self.directory.is_dir() or not self._workshop.is_dir():
                    raise
                return False
        finally:
            with suppress(FileNotFoundError):
                draft.unlink()
        versions = sorted(self._versions())
        # Frozen for long, we may have made a version that others made and deleted already. Or somebody built on ours:
        # that cannot be told apart, but then the next attempt finds our change in place.
        is_newest = versions[-1] == version
        if is_newest:
            sync_directory(self.directory)
        for old in versions[:-1]:  # In order: while a version is there, so are all after it.
            with suppress(FileNotFoundError):
                self._path(old).unlink()
        return is_newest

    def _path(self, version: int) -> Path:
        return self.directory / f"{self.name}-{version:012d}.json"

    def _versions(self) -> Iterator[int]:
        prefix = f"{self.name}-"
        for file in os.listdir(self.directory):
            if file.startswith(prefix) and file.endswith(".json"):
                yield int(file[len(prefix) : -len(".json")])

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One writer after the other, as a courtesy: it saves attempts, but nothing depends on it."""
        make_directory(self.directory)
        fd = open_file(self._workshop / f"{self.name}.lock", os.O_RDONLY | os.O_CREAT)
        try:
            deadline = self._monotonic() + self._patience
            pause = 0.001
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    self._patience = TURN_SECONDS
                    break
                except BlockingIOError:
                    if self._monotonic() >= deadline:
                        self._patience = TURN_SECONDS / 50  # It is frozen; next time we know.
                        break
                    self._sleep(pause)
                    pause = min(2 * pause, 0.01)
            yield
        finally:
            os.close(fd)
