"""What only a server can do: go away, end a session, and let others look on."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from penstock.errors import StoreUnavailable
from penstock.views.store import StoredTable, open_store
from tests.postgresql import OwnServer
from tests.views.stored_rows import HITS, hits, seen

pytestmark = pytest.mark.system


def test_a_server_that_is_restarted_fails_one_transaction_and_none_after_it(own_postgresql: OwnServer) -> None:
    with open_store(own_postgresql.new_database()) as store:
        with store.transaction(None) as tx:
            tx.create(HITS)
            tx.upsert(HITS, hits((0, "/a", 1)))
        with pytest.raises(StoreUnavailable) as caught:  # noqa: PT012, SIM117
            with store.transaction(None) as tx:
                tx.upsert(HITS, hits((0, "/a", 2)))
                own_postgresql.stop("immediate")
                own_postgresql.start()
                tx.upsert(HITS, hits((0, "/a", 3)))
        assert caught.value.is_retryable
        assert not caught.value.is_outcome_unknown
        assert seen(store.read(HITS)) == [(0, "/a", 1)]


def test_a_lost_answer_to_a_commit_says_that_nobody_knows(own_postgresql: OwnServer) -> None:
    with open_store(own_postgresql.new_database()) as store:
        with pytest.raises(StoreUnavailable) as caught:  # noqa: PT012, SIM117
            with store.transaction(None) as tx:
                tx.create(HITS)
                own_postgresql.stop("immediate")
        own_postgresql.start()
        assert caught.value.is_retryable
        assert caught.value.is_outcome_unknown


def test_a_server_that_is_not_there_can_be_tried_again(own_postgresql: OwnServer) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        open_store("postgresql://somebody:secret@127.0.0.1:1/views")
    assert caught.value.is_retryable
    assert "secret" not in str(caught.value)
    with pytest.raises(StoreUnavailable):
        open_store(own_postgresql.url("no_such_database"))


def test_a_frozen_writer_is_ended_within_its_lease(own_postgresql: OwnServer) -> None:
    url = own_postgresql.new_database()
    with open_store(url) as patient, open_store(url, lease=timedelta(seconds=0.4)) as store:
        with patient.transaction(None) as tx:
            tx.create(HITS)
        with pytest.raises(StoreUnavailable) as caught:  # noqa: PT012, SIM117
            with store.transaction(None) as tx:
                tx.upsert(HITS, hits((0, "/a", 1)))
                time.sleep(0.6)
        assert caught.value.is_retryable
        assert patient.count(HITS) == 0


def test_what_was_granted_on_a_view_outlives_its_generations(own_postgresql: OwnServer) -> None:
    url = own_postgresql.new_database()
    following = StoredTable("hits_2", HITS.schema, HITS.primary)
    with open_store(url) as store:
        with store.transaction(None) as tx:
            tx.create(HITS)
            tx.create(following)
            tx.publish("hits", HITS, ["url", "hits"])
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("GRANT SELECT ON hits TO PUBLIC")
            with store.transaction(None) as tx:
                tx.publish("hits", following, ["url", "hits"])
                tx.drop("hits_1")
            granted = "SELECT has_table_privilege('pg_monitor', 'hits', 'SELECT')"
            assert connection.execute(granted).fetchone() == (True,)


def test_copied_text_may_hold_whatever_copy_itself_is_written_with(own_postgresql: OwnServer) -> None:
    texts = ["\\.", "a\n\\.\nb", "\\N", "\t\r\n\\", "", None, "ä€😀", '"', "\\x41"] * 1_000
    blobs = [None if each is None else each.encode() for each in texts]
    rows = pa.table({"n": pa.array(range(len(texts))), "t": pa.array(texts), "b": pa.array(blobs, pa.binary())})
    table = StoredTable("texts", rows.schema, primary=("n",))
    with open_store(own_postgresql.new_database()) as store, store.transaction(None) as tx:
        tx.create(table)
        tx.insert(table, rows[3:])
        tx.upsert(table, rows)
        assert tx.read(table).sort_by("n").equals(rows)


def test_password_comes_from_a_setting_or_from_libpq(
    own_postgresql: OwnServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = own_postgresql.new_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE ROLE keeper LOGIN SUPERUSER PASSWORD 'hush 4711@/'")
    rules = own_postgresql.data / "pg_hba.conf"
    rules.write_text("host all keeper 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
    own_postgresql.control("reload")
    url = url.replace("penstock@", "keeper@")
    for wrong in ("", "hush 4712"):
        with pytest.raises(StoreUnavailable) as raised:
            open_store(url, password=wrong)
        assert "hush" not in str(raised.value)
    open_store(url, password="hush 4711@/").close()
    open_store(url.replace("keeper@", "keeper:hush%204711%40%2F@")).close()
    with monkeypatch.context() as set_for_now:
        set_for_now.setenv("PGPASSWORD", "hush 4711@/")
        open_store(url).close()
    passfile = tmp_path / "pgpass"
    passfile.write_text("*:*:*:keeper:hush 4711@/\n")
    passfile.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(passfile))
    open_store(url).close()
