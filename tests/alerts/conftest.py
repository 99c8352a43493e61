"""A database of each kind, and an authority whose certificates nobody else knows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import trustme

from penstock.views.store import Store, open_store
from tests.postgresql import Server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.system)])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty database, of each kind."""
    url = f"sqlite:{tmp_path}/any.db"
    if request.param == "postgresql":
        server: Server = request.getfixturevalue("postgresql")
        url = server.new_database()
    with open_store(url, lease=timedelta(hours=1)) as opened:
        yield opened


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:{tmp_path}/views.db") as opened:
        yield opened


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca(authority: trustme.CA, tmp_path: Path) -> str:
    """The authority as the setting `alerts.ca` names it."""
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return f"file:{tmp_path}/ca.pem"
