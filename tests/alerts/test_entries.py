"""Entries are claimed by one courier at a time, in every kind of database."""

from __future__ import annotations

import threading

from penstock.alerts import entries as told
from penstock.alerts.entries import Claimed
from penstock.views.store import Store
from tests.alerts.waiting import entries, put

MAIL, WEB = "mailto:a@example.com", "https://hooks.example.com/services/secret"
SCHEMES = ("mailto", "https")
NOW = 1 << 60
"""Long after everything is due."""


def claim(store: Store, number: int, holder: str, now: int = NOW) -> Claimed | None:
    with store.transaction(None) as tx:
        return told.claim(tx.connection, ("shop", "too_many", number), holder, now, 1000)


def test_an_entry_is_claimed_once_until_the_claim_runs_out(any_store: Store) -> None:
    number = put(any_store, WEB)
    first = claim(any_store, number, "one")
    assert first is not None
    assert (first.address, first.entry.receiver, first.entry.attempts) == (WEB, "https://hooks.example.com/...", 1)
    assert claim(any_store, number, "two") is None
    assert claim(any_store, number, "two", NOW + 999) is None
    second = claim(any_store, number, "two", NOW + 1000)
    assert second is not None
    with any_store.transaction(None) as tx:
        assert not told.settle(tx.connection, first, "one", state="sent", next_us=None)
        assert told.settle(tx.connection, second, "two", state="sent", next_us=None, sent_us=NOW)
    [found] = entries(any_store)
    assert (found.state, found.attempts, found.sent_us) == ("sent", 2, NOW)
    assert claim(any_store, number, "three", NOW + 5000) is None


def test_of_many_who_claim_at_once_one_gets_it(any_store: Store) -> None:
    numbers = [put(any_store, MAIL) for _ in range(10)]
    taken: list[tuple[int, str]] = []

    def work(holder: str) -> None:
        taken.extend((number, holder) for number in numbers if claim(any_store, number, holder) is not None)

    threads = [threading.Thread(target=work, args=(f"holder {place}",)) for place in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(number for number, _ in taken) == numbers


def test_what_is_due_comes_in_order_and_only_what_a_courier_can_carry(any_store: Store) -> None:
    late, mail, web = (
        put(any_store, MAIL, next_us=NOW + 1),
        put(any_store, MAIL, next_us=7),
        put(any_store, WEB, next_us=5),
    )
    put(any_store, MAIL, state="failed", next_us=None)
    put(any_store, "topic:alarms", state="sent", next_us=None)
    with any_store.snapshot() as snapshot:
        due = [number for _, _, number in told.due(snapshot.connection, NOW, SCHEMES, 10)]
        assert due == [web, mail]
        assert [number for _, _, number in told.due(snapshot.connection, NOW + 1, ("mailto",), 10)] == [mail, late]
        assert told.next_due(snapshot.connection, SCHEMES) == 5
        assert told.next_due(snapshot.connection, ("http",)) is None


def test_what_failed_waits_again_when_it_is_asked_to(any_store: Store) -> None:
    put(any_store, MAIL, state="failed", next_us=None, attempts=9, first_us=1, error="gone")
    put(any_store, "", state="failed", next_us=None, error="ZeroDivisionError")
    put(any_store, MAIL, state="sent", next_us=None)
    with any_store.transaction(None) as tx:
        assert told.retry(tx.connection, NOW, pipeline="other") == 0
        assert told.retry(tx.connection, NOW, pipeline="shop", alert="too_many") == 1
    first, second, third = entries(any_store)
    assert (first.state, first.attempts, first.next_us) == ("waiting", 0, NOW)
    assert (second.state, third.state) == ("failed", "sent")


def test_what_is_settled_is_forgotten_in_time_and_what_waits_is_not(any_store: Store) -> None:
    put(any_store, MAIL, created_us=5)
    put(any_store, MAIL, created_us=5, state="sent", next_us=None)
    put(any_store, MAIL, created_us=50, state="failed", next_us=None)
    with any_store.transaction(None) as tx:
        assert told.forget(tx.connection, 10) == 1
    assert [each.state for each in entries(any_store)] == ["waiting", "failed"]


def test_entries_are_found_the_newest_first(any_store: Store) -> None:
    for moment in (30, 10, 20):
        put(any_store, MAIL, created_us=moment)
    with any_store.snapshot() as snapshot:
        assert [each.created_us for each in told.recent(snapshot.connection)] == [30, 20, 10]
        assert [each.created_us for each in told.recent(snapshot.connection, pipeline="shop", limit=1)] == [30]
        assert told.recent(snapshot.connection, pipeline="other") == []
        assert told.find(snapshot.connection, "shop", "too_many", 2) == told.recent(snapshot.connection)[2]
        assert told.find(snapshot.connection, "shop", "too_many", 9) is None
