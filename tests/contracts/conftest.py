"""Every kind of log, as one fixture."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterator
from functools import partialmethod
from pathlib import Path

import pytest

from penstock.log.log import Log

_counter = itertools.count()

KINDS = ["folder", *(pytest.param(each, marks=pytest.mark.services) for each in ("kafka", "kafka with avro"))]


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a log is kept."""
    if request.param != "folder":
        return f"kafka://{request.getfixturevalue('kafka').bootstrap}"
    return f"dir:{tmp_path / 'log'}"


@pytest.fixture
def open_log(url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Log]]:
    """Opens the log, as often as one likes: each is another handle, as another process would have it."""
    opened: list[Log] = []
    if "avro" in request.node.callspec.params["url"]:
        monkeypatch.setattr(Log, "create", partialmethod(Log.create, values="avro"))

    def opening() -> Log:
        opened.append(Log(url, background=False))
        return opened[-1]

    yield opening
    for each in opened:
        each.close()


@pytest.fixture
def log(open_log: Callable[[], Log]) -> Log:
    return open_log()


@pytest.fixture
def name() -> str:
    """A topic that no other test has: brokers are shared."""
    return f"t{next(_counter)}-{secrets.token_hex(3)}"
