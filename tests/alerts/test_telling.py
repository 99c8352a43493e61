"""What a step writes of an alert: once per key and period, by the clock of the log, in every kind of database."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import event

from penstock.alerts import telling
from penstock.alerts.compiled import CompiledAlert
from penstock.alerts.courier import Courier
from penstock.alerts.looking import Found
from penstock.alerts.telling import prepared, tell
from penstock.pipeline.definition import AlertSpec
from penstock.pipeline.place import Place
from penstock.settings import AlertsSettings
from penstock.upkeep.shape import Shape
from penstock.views.outbox import waiting
from penstock.views.store import Store
from tests.alerts.mail_server import MailServer
from tests.alerts.waiting import NOON_US, entries

pytestmark = pytest.mark.spark  # What they test imports PySpark.

PLACE = Place("/app/shop.py", 17, "app.alert('errors')")
SHAPE = Shape("errors", PLACE, ("url",), pa.schema([("url", pa.string()), ("errors", pa.int64())]))
MINUTE = 60_000_000


def alert(*receivers: str, every: timedelta = timedelta(minutes=10)) -> CompiledAlert:
    to = receivers or ("mailto:ops@example.com",)
    return CompiledAlert(AlertSpec("too_many", "errors", to, every, None, None, PLACE), SHAPE, None)


def found(*urls: str, of: CompiledAlert | None = None, text: str | None = None) -> Found:
    rows = SHAPE.rows(pa.table({"url": urls, "errors": pa.array(range(len(urls)), pa.int64())}))
    return prepared(Found(of or alert(), rows, [text] * len(urls)))


def step(store: Store, what: Found, minute: float = 0, *, begun: float | None = None) -> bool:
    """A step to that minute: from there, too, or from an earlier one."""
    begun_us, clock_us = (NOON_US + int(each * MINUTE) for each in (minute if begun is None else begun, minute))
    with store.transaction(None) as tx:
        return tell(tx.connection, "shop", [what], begun_us=begun_us, clock_us=clock_us)


def told(store: Store) -> list[tuple[int, list[str]]]:
    """By minute, the keys that were told."""
    return [((each.clock_us - NOON_US) // MINUTE, [row["url"] for row in each.rows]) for each in entries(store)]


def test_a_key_is_told_once_in_a_period(any_store: Store) -> None:
    assert step(any_store, found("/a", "/b"), 0)
    assert step(any_store, found("/a", "/c"), 5)
    assert not step(any_store, found("/a", "/b", "/c"), 9.9)
    assert step(any_store, found("/a", "/b", "/c"), 10)
    assert step(any_store, found("/a", "/b", "/c"), 15)
    assert told(any_store) == [(0, ["/a", "/b"]), (5, ["/c"]), (10, ["/a", "/b"]), (15, ["/c"])]
    assert [each.number for each in entries(any_store)] == [1, 2, 3, 4]


def test_a_transaction_that_fails_has_told_nobody(any_store: Store) -> None:
    def failing() -> None:
        with any_store.transaction(None) as tx:
            assert tell(tx.connection, "shop", [found("/a")], begun_us=NOON_US, clock_us=NOON_US)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        failing()
    assert told(any_store) == []
    assert step(any_store, found("/a"))
    assert told(any_store) == [(0, ["/a"])]


def test_what_lies_before_the_last_thing_told_is_not_told_again(any_store: Store) -> None:
    """As after a rollback: the same events are read once more, in other steps."""
    for minute in (0, 20, 40):
        assert step(any_store, found("/a"), minute)
    for minute in (0, 10, 30, 39):
        assert not step(any_store, found("/a", "/b"), minute)
    assert not step(any_store, found("/a"), 40)
    assert step(any_store, found("/a", "/b"), 50)
    assert told(any_store)[3:] == [(50, ["/a", "/b"])]


def test_one_big_step_over_what_was_read_before_tells_nobody(
    any_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Its clock is later than all that was told, and the keys that were told by then are forgotten."""
    for minute in (0, 20, 40):
        assert step(any_store, found("/a"), minute)
    assert not step(any_store, found("/a"), 40, begun=10)
    assert caplog.text == ""
    assert not step(any_store, found("/a", "/b"), 55, begun=10)
    assert "'too_many' tells nobody of 2 rows" in caplog.text
    assert step(any_store, found("/c"), 60, begun=55)
    assert told(any_store)[3:] == [(60, ["/c"])]


def test_what_was_read_without_telling_anybody_is_not_told_when_it_is_read_again(any_store: Store) -> None:
    assert not step(any_store, found(), 10)
    assert step(any_store, found("/a"), 20, begun=10)
    assert not step(any_store, found(), 40, begun=20)
    assert not step(any_store, found("/a"), 60, begun=30)
    assert step(any_store, found("/a"), 70, begun=60)
    assert [each.number for each in entries(any_store)] == [1, 2]


def test_many_rows_cost_the_transaction_little(any_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Databases end a transaction that they hear nothing of for some seconds."""
    urls = [f"/{number}" for number in range(12_000)]
    of = alert("topic:alarms", "topic:others", "mailto:a@example.com")
    step(any_store, found(*urls[:5], of=of))
    what = found(*urls, of=of)
    worded: list[int] = []
    sizes: list[int] = []
    real = telling.documents

    def counted(rows: pa.Table) -> list[dict[str, Any]]:
        worded.append(rows.num_rows)
        return real(rows)

    monkeypatch.setattr(telling, "documents", counted)
    with any_store.transaction(None) as tx:

        def executed(_: object, __: object, ___: object, parameters: Any, *____: object) -> None:
            sizes.append(len(parameters) if isinstance(parameters, list) else 1)

        event.listen(tx.connection, "before_cursor_execute", executed)
        assert tell(tx.connection, "shop", [what], begun_us=NOON_US, clock_us=NOON_US + MINUTE)
    assert sum(worded) <= telling.ROWS_MAX
    assert max(sizes) <= 5_000
    with any_store.snapshot() as snapshot:
        assert waiting(snapshot.connection, "shop") == {"alarms": 12_000, "others": 12_000}
    assert entries(any_store)[-1].rows_total == 11_995


def test_rows_that_cannot_be_worded_stop_no_step(any_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: object) -> None:
        raise ValueError("bad \udcff words")

    monkeypatch.setattr(telling, "usual_text", failing)
    assert step(any_store, found("/a"))
    [entry] = entries(any_store)
    assert (entry.state, entry.error) == ("failed", "ValueError: bad ? words")


def test_each_receiver_has_an_entry_and_a_topic_has_all_rows(any_store: Store) -> None:
    urls = [f"/{number}" for number in range(1500)]
    step(any_store, found(*urls, of=alert("mailto:a@example.com", "https://h.example.com/secret", "topic:alarms")))
    first, second, third = entries(any_store)
    assert [each.receiver for each in (first, second, third)] == [
        "mailto:a@example.com", "https://h.example.com/...", "topic:alarms",
    ]  # fmt: skip
    assert [each.state for each in (first, second, third)] == ["waiting", "waiting", "sent"]
    assert (len(first.rows), first.rows_total) == (1000, 1500)
    assert first.text.splitlines()[0] == "url=/0, errors=0"
    assert first.text.splitlines()[20:] == ["... and 1,480 more"]
    with any_store.snapshot() as snapshot:
        assert waiting(snapshot.connection, "shop") == {"alarms": 1500}


def test_each_address_of_a_mail_has_an_entry_of_its_own(any_store: Store) -> None:
    """A server that takes a mail for one of them, and not yet for another, is asked again for that one alone."""
    step(any_store, found("/a", of=alert("mailto:late@example.com, ops@example.com", "mailto:ops@example.com")))
    with MailServer() as server:
        server.to_recipient = lambda address: "450 greylisted" if address.startswith("late") else None
        assert Courier(any_store, AlertsSettings(smtp=server.url)).deliver() == 1
    assert [(each.receiver, each.state) for each in entries(any_store)] == [
        ("mailto:late@example.com", "waiting"), ("mailto:ops@example.com", "sent"),
    ]  # fmt: skip


def test_rows_that_are_very_large_are_left_out_of_the_message_and_counted(any_store: Store) -> None:
    step(any_store, found("/a", "/" + "b" * 3_000_000, "/c"))
    [entry] = entries(any_store)
    assert ([row["url"] for row in entry.rows], entry.rows_total) == (["/a"], 3)
    assert max(map(len, entry.text.splitlines())) < 300


def test_a_functions_words_are_kept_whatever_they_are(any_store: Store) -> None:
    step(any_store, found("/a", text="down: \u2028<b>\r\nBcc: x"))
    [entry] = entries(any_store)
    assert entry.text == "down: \u2028<b>\r\nBcc: x"


def test_values_that_json_does_not_know_are_texts(any_store: Store) -> None:
    columns: dict[str, Any] = {
        "k": pa.array(["a\0b"]),
        "day": pa.array([20_454], pa.date32()),
        "at": pa.array([NOON_US], pa.timestamp("us", "UTC")),
        "paid": pa.array(["1.50"]).cast(pa.decimal128(9, 2)),
        "mean": pa.array([float("nan")]),
        "raw": pa.array([b"\x00\xff"]),
        "tags": pa.array([["x", None]]),
    }
    rows = pa.table(columns)
    shape = Shape("errors", PLACE, ("k",), rows.schema)
    of = CompiledAlert(alert("mailto:a@b.c", "topic:alarms").spec, shape, None)
    step(any_store, prepared(Found(of, shape.rows(rows), [None])))
    [row] = entries(any_store)[0].rows
    assert json.loads(json.dumps(row)) == {
        "k": "a\0b", "day": "2026-01-01", "at": "2026-01-01 12:00:00.000000", "paid": "1.50", "mean": "NaN",
        "raw": "00ff", "tags": ["x", None],
    }  # fmt: skip


def test_an_alert_that_fails_says_so_once_in_a_period(any_store: Store, caplog: pytest.LogCaptureFixture) -> None:
    failed = Found(alert(), found("/a").rows.slice(0, 0), error="ZeroDivisionError: division by zero")
    with caplog.at_level(logging.WARNING):
        for minute in (0, 3, 9, 12):
            step(any_store, failed, minute)
    assert caplog.text.count("'too_many' is left out of this step") == 2
    assert "shop.py:17" in caplog.text
    assert PLACE.text not in caplog.text  # It may name a web hook, whose path is a secret.
    first, second = entries(any_store)
    assert (first.state, first.receiver, first.rows, first.next_us) == ("failed", "", [], None)
    assert first.error == second.error == "ZeroDivisionError: division by zero"
    assert step(any_store, found("/a"), 12)
    assert entries(any_store)[-1].state == "waiting"
