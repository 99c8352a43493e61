"""A guard for tests: no call of the log or of a database is made in a thread that runs an event loop."""

from __future__ import annotations

import asyncio
import functools
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import apsw
import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from penstock.log.folder_log import FolderLog
from penstock.log.folder_partition import FolderPartition
from penstock.log.folder_topic import FolderTopic
from penstock.log.log import Log
from penstock.log.partition import Partition
from penstock.log.topic import Topic
from penstock.views.store import Store

BLOCKING: dict[type, tuple[str, ...]] = {
    Log: ("create", "topic", "topics"),
    FolderLog: ("_find", "_make", "_names", "delete", "is_there", "topics_signals"),
    Topic: ("alter", "append", "cut", "end", "slice", "start"),
    FolderTopic: ("compact", "refresh", "seal"),
    Partition: (),
    FolderPartition: ("append", "end", "last_sequence", "read", "start_offset"),
    Store: ("reading", "snapshot", "transaction"),
}


@contextmanager
def nothing_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Fails at its end with where such calls were made. The list grows meanwhile."""
    found: list[str] = []

    def look(what: str) -> None:
        if threading.current_thread() is threading.main_thread():
            return  # The test itself. Playwright runs a loop of its own there.
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        stack = [each for each in traceback.format_stack(limit=12) if "/penstock/" in each]
        found.append(f"{what} on the event loop:\n{''.join(stack)}")

    def watched(what: str, body: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(body)
        def call(*arguments: Any, **options: Any) -> Any:
            look(what)
            return body(*arguments, **options)

        return call

    for kind, names in BLOCKING.items():
        for name in names:
            monkeypatch.setattr(kind, name, watched(f"{kind.__name__}.{name}", getattr(kind, name)))

    def on_statement(*_: Any) -> None:
        look("a statement of SQLAlchemy")

    def on_sqlite(*_: Any) -> bool:
        look("a statement of SQLite")
        return True

    def on_connection(connection: apsw.Connection) -> None:
        connection.set_exec_trace(on_sqlite)

    event.listen(Engine, "before_cursor_execute", on_statement)
    apsw.connection_hooks.append(on_connection)
    try:
        yield found
    finally:
        apsw.connection_hooks.remove(on_connection)
        event.remove(Engine, "before_cursor_execute", on_statement)
    assert not found, "\n".join(dict.fromkeys(found))
