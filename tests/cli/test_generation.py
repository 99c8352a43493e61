"""penstock diff, switch, rollback and view generations: which copy of a view people read, without Spark."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import NothingReady
from penstock.modes.rollback import switch_ready
from penstock.views.catalog import Catalog, Counters, Generation, KnownView
from penstock.views.fence import Fence
from penstock.views.keys import key_hashes
from penstock.views.owner import Owner, own
from penstock.views.store import StoredTable, open_store
from tests.cli.commands import fails, run
from tests.cli.stored_views import HITS, NOON, TOTAL, Stored, stored, us
from tests.eventually import LIMIT_SECONDS, eventually

FENCE = Fence({"access": {0: 8}}, us(NOON))


def add(
    web: Stored, hits: list[tuple[str, int]], *, state: str = "ready", fence: Fence = FENCE, also: str | None = None
) -> Generation:
    """One more generation of `hits` and `total`, with these rows; `also` is one more column of `hits`."""
    schema = HITS if also is None else HITS.append(pa.field(also, pa.int64()))
    rows = pa.Table.from_pylist([{"url": url, "hits": count, "paid": 9} for url, count in hits], schema=schema)
    sums = pa.table({"hits": pa.array([sum(count for _, count in hits)], pa.int64())})
    with open_store(web.views_url) as store, own(store.engine, "web") as owner, store.transaction(owner) as tx:
        catalog = Catalog(tx.connection)
        number = catalog.next_number("web", "hits", ["hits", "total"])
        known = []
        for name, columns, key, table in (("hits", schema, ("window", "url"), rows), ("total", TOTAL, (), sums)):
            place = StoredTable(f"{name}__{number}", pa.schema([("_key", pa.binary(16)), *columns]), ("_key",))
            tx.create(place)
            tx.insert(place, table.append_column("_key", key_hashes(table, key)))
            known.append(KnownView(name, "g", columns, "fold", key, {"rows": place.name}, {"topics": ["access"]}))
        made = catalog.new_generation("web", "hits", known)
        made = catalog.set_fence(made, fence, {"hits": Counters(len(hits)), "total": Counters(1)})
        return catalog.ready(made) if state == "ready" else made


@pytest.fixture
def web(tmp_path: Path) -> Stored:
    """Generation 1, eight rows, which is what people read."""
    return stored(tmp_path)


@pytest.fixture
def ready(web: Stored) -> Stored:
    """Generation 2, two rows, waits."""
    add(web, [("/a", 3), ("/b", 4)])
    return web


def listed(web: Stored, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("view", "generations", *words, "--json", *web.views))
    return found


def states(web: Stored) -> list[tuple[int, str]]:
    return [(each["generation"], each["state"]) for each in listed(web, "hits")]


def count(web: Stored) -> int:
    [row] = json.loads(run("view", "query", "SELECT count(*) AS n FROM hits", "--json", *web.views))
    return int(row["n"])


# --- view generations ---


def test_generations_tell_what_is_read_what_waits_and_how_far_each_came(ready: Stored) -> None:
    assert [(each["view"], each["generation"], each["state"]) for each in listed(ready)] == [
        ("hits", 1, "live"), ("total", 1, "live"), ("hits", 2, "ready"), ("total", 2, "ready"),
    ]  # fmt: skip
    live, waiting = listed(ready, "hits")
    assert (live["pipeline"], live["rows"], live["lies_on"], live["fence"]) == ("web", 8, None, {"access": {"0": 8}})
    assert live["clock"] == "2026-01-01T12:07:00Z"
    assert live["switched_in"] is not None
    assert (waiting["rows"], waiting["switched_in"], waiting["replaced"]) == (2, None, None)
    text = run("view", "generations", "hits", *ready.views)
    assert "lies on" in text
    assert "ready" in text
    assert "total" not in text


def test_generations_of_nothing_are_none_and_make_no_file(tmp_path: Path) -> None:
    where = ["--views", f"sqlite:{tmp_path}/none.db"]
    assert run("view", "generations", "--json", *where) == "[]\n"
    assert "views are made by the first run" in fails("view", "generations", "hits", *where)
    assert "views are made by the first run" in fails("rollback", "hits", *where)
    assert "views are made by the first run" in fails("diff", "hits@old", "hits@new", *where)
    assert "nothing is ready" in fails("switch", *where)
    assert list(tmp_path.iterdir()) == []


# --- diff ---


def test_diff_of_a_generation_with_itself_agrees(web: Stored) -> None:
    text = run("diff", "hits@1", "hits@live", *web.views)
    assert "8 rows the same, 0 different, 0 only in the old one, 0 only in the new one" in text
    document = json.loads(run("diff", "hits@1", "hits@new", "--json", *web.views))
    assert (document["agrees"], document["same_records"], document["equal"]) == (True, True, 8)
    assert document["examples"] == []


def test_diff_shows_what_differs_and_ends_with_1(web: Stored) -> None:
    first = add(web, [("/a", 3), ("/b", 4), ("/c", 5)])
    add(web, [("/a", 3), ("/b", 7), ("/d", 6)], state="building")
    words = ["diff", f"hits@{first.number}", "hits@3"]
    text = run(*words, *web.views, code=1)
    assert text.startswith("hits: generation 2 (as of 2026-01-01T12:00:00Z) and 3 (as of 2026-01-01T12:00:00Z)\n")
    assert "1 row the same, 1 different, 1 only in the old one, 1 only in the new one" in text
    assert "hits 4 -> 7" in text
    assert "only in the old one: " in text
    assert "only in the new one: " in text
    assert "they have not seen the same records" not in text
    document = json.loads(run(*words, "--json", *web.views, code=1))
    assert document["agrees"] is False
    assert {name: document[name] for name in ("equal", "different", "only_old", "only_new")} == {
        "equal": 1, "different": 1, "only_old": 1, "only_new": 1,
    }  # fmt: skip
    assert [each["kind"] for each in document["examples"]] == ["different", "missing", "extra"]
    assert document["examples"][0]["columns"] == ["hits"]
    assert json.loads(run(*words, "--examples", "0", "--json", *web.views, code=1))["examples"] == []


def test_diff_tells_of_other_columns_and_of_other_records(web: Stored) -> None:
    add(web, [("/a", 3)])
    add(web, [("/a", 3)], state="building", also="visitors", fence=Fence({"access": {0: 10}}, us(NOON)))
    text = run("diff", "hits@2", "hits@3", *web.views, code=1)
    assert "they have not seen the same records, so rows may differ for that alone" in text
    assert "columns new: visitors" in text
    assert "1 row the same, 0 different" in text
    document = json.loads(run("diff", "hits@3", "hits@2", "--json", *web.views, code=1))
    assert document["columns"] == {"added": [], "removed": ["visitors"], "retyped": []}
    assert (document["same_records"], document["equal"], document["agrees"]) == (False, 1, False)


@pytest.mark.parametrize(
    ("words", "told", "code"),
    [
        (["diff", "hits", "hits@new"], "expected VIEW@GENERATION", 2),
        (["diff", "hits@", "hits@new"], "expected VIEW@GENERATION", 2),
        (["diff", "@old", "hits@new"], "expected VIEW@GENERATION", 2),
        (["diff", "hits@old", "total@new"], "two generations of one view", 2),
        (["diff", "hits@old"], "Missing argument", 2),
        (["diff", "hits@live", "hits@new", "--examples", "-1"], "--examples", 2),
        (["diff", "hit@old", "hit@new"], "did you mean 'hits'", 1),
        (["diff", "hits@old", "hits@9"], "there are: 1 (live)", 1),
        (["diff", "hits@1", "hits@newest"], "expected: live, old, new, or a number", 1),
        (["rollback", "hit"], "did you mean 'hits'", 1),
        (["rollback", "hits"], "there is no older generation", 1),
        (["rollback"], "Missing argument", 2),
        (["switch"], "penstock run FILE --mode kappa --hold", 1),
        (["switch", "web"], "nothing is ready", 1),
        (["view", "generations", "hit"], "did you mean 'hits'", 1),
    ],
)
def test_what_cannot_be_done_is_told_with_what_can(web: Stored, words: list[str], told: str, code: int) -> None:
    text = " ".join(fails(*words, *web.views, code=code).replace("│", " ").split())
    assert told in text
    assert states(web) == [(1, "live")]


# --- switch and rollback ---


def test_switch_and_rollback_exchange_what_people_read(ready: Stored) -> None:
    assert count(ready) == 8
    assert "hits: generation 1 " in run("diff", "hits@old", "hits@new", *ready.views, code=1)
    text = run("switch", *ready.views)
    assert text == "hits, total: generation 2 is read now, as of 2026-01-01T12:00:00Z\n"
    assert (count(ready), states(ready)) == (2, [(1, "old"), (2, "live")])
    assert listed(ready, "hits")[0]["replaced"] is not None

    text = run("rollback", "total", *ready.views)
    assert "hits, total: generation 1 is read now, as of 2026-01-01T12:07:00Z\n" in text
    assert "penstock run FILE --mode kappa" in text
    assert (count(ready), states(ready)) == (8, [(1, "live"), (2, "old")])

    [hits, total] = json.loads(run("rollback", "hits", "--json", *ready.views))
    assert (hits["view"], hits["generation"], hits["state"], total["view"]) == ("hits", 2, "live", "total")
    assert (count(ready), states(ready)) == (2, [(1, "old"), (2, "live")])
    assert "nothing is ready" in fails("switch", *ready.views)


def test_switch_takes_the_name_of_a_pipeline_and_prints_json(ready: Stored) -> None:
    text = fails("switch", "shop", *ready.views)
    assert "pipeline 'shop' has nothing ready" in text
    assert "penstock switch web" in text
    found = json.loads(run("switch", "web", "--json", *ready.views))
    assert [(each["view"], each["generation"], each["state"]) for each in found] == [
        ("hits", 2, "live"), ("total", 2, "live"),
    ]  # fmt: skip


@pytest.mark.parametrize("left", ["old", "dropped"])
def test_switch_takes_no_generation_that_another_run_has_replaced(ready: Stored, left: str) -> None:
    with open_store(ready.views_url) as store:
        own_now = store.own

        def own_later(pipeline: str) -> Owner:
            """Before this switch owns the pipeline, another one takes place and is taken back, or a run starts over."""
            with own_now(pipeline) as owner, store.transaction(owner) as tx:
                catalog = Catalog(tx.connection)
                first, second = catalog.generations(pipeline)
                if left == "dropped":
                    tx.exchange(drop=catalog.drop(second))
                else:
                    catalog.switch(second)
                    catalog.switch(first)
            return own_now(pipeline)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "own", own_later)
            with pytest.raises(NothingReady):
                switch_ready(store)
    assert states(ready) == [(1, "live"), (2, "old")][: 1 if left == "dropped" else 2]
    assert count(ready) == 8


def test_switch_is_done_here_if_the_run_ends_without_it(ready: Stored) -> None:
    with open_store(ready.views_url) as store:
        run_that_ends = own(store.engine, "web")
        switching = threading.Thread(target=lambda: run("switch", *ready.views))
        switching.start()
        eventually(lambda: store.query("SELECT count(*) FROM _penstock_requests")[1] == [(1,)])
        run_that_ends.release()
        switching.join(LIMIT_SECONDS)
        assert store.query("SELECT count(*) FROM _penstock_requests")[1] == [(0,)]
    assert states(ready) == [(1, "old"), (2, "live")]


def test_what_was_replaced_is_kept_as_long_as_the_settings_say(
    ready: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_VIEWS_KEEP_OLD", "0")
    run("switch", *ready.views)
    assert states(ready) == [(2, "live")]
    assert "there is no older generation" in fails("rollback", "hits", *ready.views)


def test_a_rollback_waits_for_nobody_and_leaves_a_run_alone(ready: Stored) -> None:
    run("switch", *ready.views)
    with open_store(ready.views_url) as store, own(store.engine, "web"):
        assert "is being run already" in fails("rollback", "hits", *ready.views)
    assert states(ready) == [(1, "old"), (2, "live")]


def test_dropping_views_takes_all_their_generations(ready: Stored) -> None:
    run("switch", *ready.views)
    run("view", "drop", "hits", "total", "--yes", *ready.views)
    assert listed(ready) == []
    with open_store(ready.views_url) as store:
        names = store.query("SELECT name FROM sqlite_schema WHERE name LIKE 'hits%' OR name LIKE 'total%'")[1]
    assert names == []
