"""What a log does in the background: seal closed segments, apply retention, sync what was left to the system."""

from __future__ import annotations

import logging
import queue
import threading
import time
from typing import TYPE_CHECKING

from penstock.log.sealing import seal

if TYPE_CHECKING:
    from penstock.log.folder_log import FolderLog
    from penstock.log.folder_partition import FolderPartition

logger = logging.getLogger("penstock.log")

SYNC_SECONDS = 1.0
"""With durability="os" a power cut takes at most about this much."""
RETENTION_SECONDS = 60.0


class Upkeep:
    """One quiet thread per log and process. It starts with the first closed segment, and sleeps when nothing is due.

    Work of the same kind in other processes is noticed by the partition's maintenance lock and left to them. An error
    is logged and tried again at the next occasion; it never disturbs producers or consumers.
    """

    def __init__(self, log: FolderLog) -> None:
        self._log = log
        self._closed: queue.SimpleQueue[FolderPartition | None] = queue.SimpleQueue()
        self._unsynced: set[FolderPartition] = set()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._is_stopping = False

    def seal_soon(self, partition: FolderPartition) -> None:
        self._closed.put(partition)
        self._start()

    def sync_soon(self, partition: FolderPartition) -> None:
        """The partition has records that are not on disk yet: sync them within a second."""
        if partition not in self._unsynced:
            self._unsynced.add(partition)
            self._start()

    def stop(self) -> None:
        """Waits for the segment being sealed, and ends."""
        with self._lock:
            thread, self._is_stopping = self._thread, True
        if thread is not None:
            self._closed.put(None)
            thread.join()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._is_stopping:
                self._thread = threading.Thread(target=self._run, name="penstock-upkeep", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        retained = time.monotonic()
        while not self._is_stopping:
            partition = self._wait(retained + RETENTION_SECONDS - time.monotonic())
            if self._is_stopping:
                return
            for unsynced in list(self._unsynced):
                self._unsynced.discard(unsynced)
                self._try("sync", unsynced)
            if partition is not None:
                self._try("seal", partition)
            if time.monotonic() - retained > RETENTION_SECONDS:
                retained = time.monotonic()
                self._retain()

    def _wait(self, seconds: float) -> FolderPartition | None:
        try:
            return self._closed.get(timeout=max(SYNC_SECONDS if self._unsynced else seconds, 0.01))
        except queue.Empty:
            return None

    def _retain(self) -> None:
        for name in self._log.topics(dead=True):
            try:
                topic = self._log.topic(name)
                definition = topic.definition
                if definition.retention_age is not None or definition.retention_bytes is not None:
                    topic.retain()
                if definition.compact:
                    topic.compact()
            except Exception as error:  # Whatever it is, the thread lives on: others wait for it.
                logger.warning("log: upkeep of topic %s did not finish and will be tried again: %s", name, error)

    def _try(self, what: str, partition: FolderPartition) -> None:
        try:
            if what == "seal":
                seal(partition, wait=False)
            else:
                partition.sync()
        except Exception as error:  # Whatever it is, the thread lives on: others wait for it.
            logger.warning("log: could not %s %s, will try again later: %s", what, partition.place, error)
