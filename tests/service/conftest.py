"""A service over views in each kind of database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.postgresql import Server
from tests.service.on_loop import nothing_on_the_loop
from tests.service.site import Site, make_site
from tests.views.conftest import url

__all__ = ["url"]


@pytest.fixture(scope="package", autouse=True)
def loop_guard() -> Iterator[list[str]]:
    """No test of the service calls the log or a database on the event loop."""
    with pytest.MonkeyPatch.context() as monkeypatch, nothing_on_the_loop(monkeypatch) as found:
        yield found


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Views in SQLite."""
    return make_site(tmp_path, f"sqlite:{tmp_path}/views.db")


@pytest.fixture
def any_site(tmp_path: Path, url: str) -> Site:
    """Views in each kind of database."""
    return make_site(tmp_path, url)


@pytest.fixture
def client(site: Site) -> Iterator[httpx.Client]:
    """A service over `site`, and a client of it."""
    with site.serving() as served:
        yield served


@pytest.fixture(scope="module")
def steady_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """One service for tests that change nothing, or nothing that others look at."""
    folder = tmp_path_factory.mktemp("site")
    with make_site(folder, f"sqlite:{folder}/views.db").serving() as served:
        yield served


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.system)])
def shared_client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """One service over each kind of database, for tests that change nothing."""
    folder = tmp_path_factory.mktemp("site")
    address = f"sqlite:{folder}/views.db"
    if request.param == "postgresql":
        server: Server = request.getfixturevalue("postgresql")
        address = server.new_database()
    with make_site(folder, address).serving() as served:
        yield served
