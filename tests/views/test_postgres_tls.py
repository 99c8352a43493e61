"""PostgreSQL over TLS: views are written through it, and a server that nobody vouches for is refused."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
import trustme

import penstock
from penstock import Pipeline
from penstock.errors import StoreNotTrusted, StoreUnavailable
from penstock.pipeline.database_rows import read_database
from penstock.settings import LogSettings, Settings, SparkSettings, ViewsSettings
from penstock.views.store import open_store
from tests.postgresql import OwnServer, Server, running
from tests.views.stored_rows import HITS, hits, seen

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.system


@dataclass(frozen=True)
class Guarded:
    """A server with a certificate, and the file of the authority that signed it."""

    server: OwnServer
    ca_file: Path

    def url(self, mode: str = "verify-full", ca_file: Path | None = None) -> str:
        return f"{self.server.new_database()}?sslmode={mode}&sslrootcert={ca_file or self.ca_file}"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    authority = trustme.CA()
    ca_file = tmp_path_factory.mktemp("authority") / "ca.pem"
    authority.cert_pem.write_to_path(ca_file)
    for server in running(authority.issue_cert("127.0.0.1")):
        yield Guarded(server, ca_file)


@pytest.mark.spark
def test_views_are_written_over_tls(tmp_path: Path, guarded: Guarded, spark: SparkSession) -> None:
    from pyspark.sql import functions as sf

    app = Pipeline("guarded")
    app.topic("clicks", "page string")

    @app.view(key="page")
    def pages(clicks: DataFrame) -> DataFrame:
        return clicks.groupBy("page").agg(sf.count("*").alias("clicks"))

    url = guarded.url()
    settings = Settings(
        log=LogSettings(url=f"dir:{tmp_path / 'log'}"),
        views=ViewsSettings(url=url),
        spark=SparkSettings(master="local[2]"),
    )
    with penstock.Log(settings.log.url) as log:
        log.create("clicks", "page string").append([{"page": "/a"}, {"page": "/a"}, {"page": "/b"}])
    penstock.run(app, mode="stream", once=True, settings=settings)
    with open_store(url) as store:
        assert store.query("SELECT page, clicks FROM pages ORDER BY page")[1] == [("/a", 2), ("/b", 1)]
        encrypted = (
            "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE client_port IS NOT NULL"
        )
        assert store.query(encrypted)[1] == [(True,)]


def test_a_server_that_is_restarted_is_connected_to_anew(guarded: Guarded) -> None:
    with open_store(guarded.url()) as store:
        with store.transaction(None) as tx:
            tx.create(HITS)
        with pytest.raises(StoreUnavailable) as caught:  # noqa: PT012, SIM117
            with store.transaction(None) as tx:
                tx.upsert(HITS, hits((0, "/a", 1)))
                guarded.server.restart()
                tx.upsert(HITS, hits((0, "/a", 2)))
        assert caught.value.is_retryable, "an end of TLS is no lack of trust"
        with store.transaction(None) as tx:
            tx.upsert(HITS, hits((0, "/a", 3)))
        assert seen(store.read(HITS)) == [(0, "/a", 3)]


def test_a_server_of_another_authority_is_refused(guarded: Guarded, tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    for wrong in (
        guarded.url(ca_file=tmp_path / "other.pem"),
        guarded.url(ca_file=tmp_path / "missing.pem"),
        guarded.url().replace("127.0.0.1", "localhost"),
    ):
        with pytest.raises(StoreNotTrusted, match="sslmode=verify-full&sslrootcert=FILE") as refused:
            open_store(wrong)
        assert not refused.value.is_retryable
        assert "certificate" in str(refused.value.cause)


def test_a_server_without_tls_is_refused_where_it_is_asked_for(postgresql: Server) -> None:
    with pytest.raises(StoreNotTrusted, match="server does not support SSL"):
        open_store(f"{postgresql.new_database()}?sslmode=require")


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_a_plain_connection_that_leaves_the_machine_is_warned_of(
    is_encrypted: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.loopback._warned", set())
    address = own_address()
    certificate = trustme.CA().issue_cert(address) if is_encrypted else None
    for server in running(certificate, is_open=True):
        near = server.new_database()
        far = near.replace("127.0.0.1", address)
        with psycopg.connect(near) as connection:
            connection.execute("CREATE TABLE shelves AS SELECT 1 AS number")
        app = Pipeline("tables")
        with caplog.at_level(logging.WARNING):
            open_store(near).close()
            open_store(f"postgresql://penstock@/postgres?host={server.folder}&port={server.port}").close()
            assert caplog.messages == []
            open_store(far).close()
            open_store(far).close()
            read_database(app.table("shelves", far))
    told = [each.splitlines()[0] for each in caplog.messages]
    assert told == [
        f"{stage}: what is said to the database {place} leaves this machine without encryption: "
        "anybody on the way can read it"
        for stage, place in (("views", far), ("pipeline", far.replace("postgresql:", "postgresql+psycopg:")))
        if not is_encrypted
    ]


def own_address() -> str:
    """An address of this machine that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # Nothing is sent: it only asks which address would be used.
        except OSError:
            pytest.skip("this machine has no other address than loopback")
        found: str = probe.getsockname()[0]
    return found
