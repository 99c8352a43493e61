"""A shop at work, and a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.dashboard.browser import browser
from tests.dashboard.shop import Shop, make_shop, new_shop
from tests.service.conftest import loop_guard

__all__ = ["loop_guard"]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A shop that was open for a while."""
    made = make_shop(tmp_path)
    yield made
    made.close()


@pytest.fixture
def empty_shop(tmp_path: Path) -> Iterator[Shop]:
    """No topic, no database."""
    made = new_shop(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def steady_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shop, str]]:
    """One shop that is served, for tests that change nothing."""
    made = make_shop(tmp_path_factory.mktemp("shop"))
    with made.serving() as url:
        yield made, url
    made.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for the tests of a file."""
    with browser() as started:
        yield started
