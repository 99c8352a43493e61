"""The log in a folder: no server, any number of processes."""

from __future__ import annotations

import shutil
import stat
import threading
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.access import is_shared, make_shared_folder
from penstock.consume.folder_groups import FolderGroups
from penstock.errors import LogIsPrivate, LogUrlError
from penstock.log.definition import FILE_NAME, TopicDefinition, read_definition, write_definition
from penstock.log.files import locked, make_directory, sync_directory
from penstock.log.folder_partition import FolderPartition
from penstock.log.folder_topic import FolderTopic
from penstock.log.log import DEFAULT_URL, Log
from penstock.log.upkeep import Upkeep

DELETED_PREFIX = "deleted-"
"""A folder of this name was a topic; only its files are left to be removed."""


class FolderLog(Log):
    """The log in a folder. Nothing is written before a topic is made."""

    def __init__(self, url: str | Path = DEFAULT_URL, **options: Any) -> None:
        """Opens `dir:PATH`, or a plain path. Without `background` nothing is sealed or dropped unless you say so."""
        super().__init__(url, **options)
        self.root = _root(url)
        if self.group_access and self.root.is_dir() and not is_shared(self.root):
            raise LogIsPrivate(self.root.absolute(), stat.S_IMODE(self.root.stat().st_mode))
        self.topics_directory = self.root / "topics"
        self._topics: dict[str, FolderTopic] = {}
        self._lock = threading.RLock()
        self._upkeep = Upkeep(self) if self._is_background else None

    @property
    def url(self) -> str:
        return f"dir:{self.root.absolute()}"

    @property
    def spill_directory(self) -> Path:
        return self.root / "spill"

    @property
    def groups(self) -> FolderGroups:
        return FolderGroups(self)

    def topics_signals(self) -> list[Path]:
        self._make_root()
        # A topic that is being made right now becomes one without the folder above noticing.
        unfinished = [path for path in self.topics_directory.iterdir() if not (path / FILE_NAME).exists()]
        return [self.topics_directory, *unfinished]

    def is_there(self) -> bool:
        return self.root.is_dir()

    # --- topics ---

    def topic(self, name: str) -> FolderTopic:
        found = super().topic(name)
        assert isinstance(found, FolderTopic)
        return found

    def create(self, name: str, schema: str, **options: Any) -> FolderTopic:
        """Makes a topic; see `Log.create`."""
        found = super().create(name, schema, **options)
        assert isinstance(found, FolderTopic)
        return found

    def _make(self, definition: TopicDefinition) -> bool:
        self._make_root()
        with locked(self.root / "lock"):
            self._finish_deleting()
            directory = self.topics_directory / definition.name
            if (directory / FILE_NAME).exists():
                return False
            for number in range(definition.partitions):
                make_directory(directory / str(number))
            write_definition(directory, definition)
        return True

    def _make_root(self) -> None:
        if self.group_access and not self.root.is_dir():
            with suppress(FileExistsError):
                make_shared_folder(self.root)
            sync_directory(self.root.parent)
        make_directory(self.topics_directory)

    def _find(self, name: str) -> FolderTopic | None:
        with self._lock:
            try:
                definition = read_definition(self.topics_directory / name)
            except (FileNotFoundError, NotADirectoryError):
                return None
            known = self._topics.get(name)
            if known is None or known.definition.id != definition.id:
                known = self._topics[name] = FolderTopic(self, definition)
            else:
                known.refresh()
            return known

    def _names(self) -> list[str]:
        if not self.topics_directory.is_dir():
            return []
        return [entry.name for entry in self.topics_directory.iterdir() if (entry / FILE_NAME).exists()]

    def delete(self, name: str) -> None:
        """Deletes a topic with all its records. Writers that wait at this moment are refused."""
        topic = self.topic(name)
        with locked(self.root / "lock"):
            topic.directory.rename(self.root / f"{DELETED_PREFIX}{uuid.uuid4().hex}")
            sync_directory(self.topics_directory)
            self._finish_deleting()
        with self._lock:
            self._topics.pop(name, None)
        topic.close()

    def _finish_deleting(self) -> None:
        """Removes the files of deleted topics, also of those whose process died half way. Needs the log's lock.

        A writer that was in the middle of an append when the folder got its new name is waited for: it may still make
        files under the old name, where another topic could be by then.
        """
        for gone in self.root.glob(f"{DELETED_PREFIX}*"):
            for lock in gone.glob("*/lock"):
                with locked(lock):
                    pass
            shutil.rmtree(gone)

    # --- upkeep ---

    def seal_soon(self, partition: FolderPartition) -> None:
        """A segment was closed: seal it in the background, if this log has one."""
        if self._upkeep is not None:
            self._upkeep.seal_soon(partition)

    def sync_soon(self, partition: FolderPartition) -> None:
        """Records were left to the operating system: sync them in the background, if this log has one."""
        if self._upkeep is not None:
            self._upkeep.sync_soon(partition)

    def close(self) -> None:
        """Ends the background work and closes all files."""
        if self._upkeep is not None:
            self._upkeep.stop()
        with self._lock:
            for topic in self._topics.values():
                topic.close()
            self._topics.clear()


def _root(url: str | Path) -> Path:
    if isinstance(url, Path):
        return url
    scheme, colon, rest = url.partition(":")
    if (colon and scheme != "dir") or not (rest if colon else url):
        raise LogUrlError(url)
    return Path(rest if colon else url)
