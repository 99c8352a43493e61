"""One reading a second for all, none for nobody; rates, the time before, and what goes away and comes back."""

from __future__ import annotations

import asyncio
import shutil
import time
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.dashboard import pulse as pulse_module
from penstock.dashboard.beat import Beat, read_beat
from penstock.dashboard.history import Point, earlier_points, per_second, rates_of
from penstock.dashboard.pulse import Pulse
from penstock.service.service import Service
from penstock.views.store import open_store
from penstock.views.system_tables import ALERTS, RUNS
from tests.dashboard.shop import Shop, make_shop, started
from tests.eventually import eventually
from tests.postgresql import Server


def test_nothing_is_read_while_nobody_watches(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse_module, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(pulse_module, "LINGER_SECONDS", 0.1)
    with started(shop) as service:
        time.sleep(0.2)
        assert service.pulse.beat is None
        with service.pulse.watching(), service.pulse.watching():
            eventually(lambda: service.pulse.number >= 3)
            assert service.pulse.watchers == 2
        eventually(lambda: not service.pulse.is_running)
        number = service.pulse.number
        time.sleep(0.2)
        assert service.pulse.number == number
        with service.pulse.watching():
            eventually(lambda: service.pulse.number > number)


def test_ten_who_watch_cost_one_reading(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = []

    def counted(*given: Any, **named: Any) -> Beat:
        readings.append(1)
        return read_beat(*given, **named)

    monkeypatch.setattr(pulse_module, "read_beat", counted)
    monkeypatch.setattr(pulse_module, "BEAT_SECONDS", 0.2)
    with started(shop) as service:
        watches = [service.pulse.watching() for _ in range(10)]
        for each in watches:
            each.__enter__()
        eventually(lambda: service.pulse.number >= 5)
        assert len(readings) <= service.pulse.number + 1
        for each in watches:
            each.__exit__(None, None, None)


def test_the_same_question_within_a_beat_is_asked_once(shop: Shop) -> None:
    with started(shop) as service:
        asked = []

        def answer() -> int:
            asked.append(1)
            return len(asked)

        async def ask() -> list[int]:
            return await asyncio.gather(*(service.pulse.shared("key", answer) for _ in range(5)))

        assert service.loop is not None
        assert asyncio.run_coroutine_threadsafe(ask(), service.loop).result() == [1] * 5


def test_an_answer_is_kept_unchanged_and_ten_times_as_long_as_it_took(shop: Shop) -> None:
    with started(shop) as service:
        now = [0.0]
        pulse = Pulse(service, clock=lambda: now[0])
        asked: list[str] = []

        def answer(word: str, seconds: float = 0.0) -> str:
            asked.append(word)
            now[0] += seconds
            return word

        def ask(word: str, version: object = None, seconds: float = 0.0) -> str:
            pulse.number += 1  # Another beat.
            assert service.loop is not None
            asking = pulse.shared("key", lambda: answer(word, seconds), version)
            return asyncio.run_coroutine_threadsafe(asking, service.loop).result()

        assert ask("a", version=1) == ask("b", version=1) == "a"
        assert ask("c", version=2, seconds=1.0) == "c"
        now[0] += 9.9
        assert ask("d", version=3) == "c"
        now[0] += 0.2
        assert ask("e", version=3) == "e"
        assert asked == ["a", "c", "e"]


def test_a_failure_is_not_kept(shop: Shop) -> None:
    with started(shop) as service:
        assert service.loop is not None
        failing = service.pulse.shared("key", lambda: 1 // 0, 1)
        with pytest.raises(ZeroDivisionError):
            asyncio.run_coroutine_threadsafe(failing, service.loop).result()
        service.pulse.number += 1
        assert asyncio.run_coroutine_threadsafe(service.pulse.shared("key", lambda: 7, 1), service.loop).result() == 7


class Rows:
    """What an answer is measured by."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


def test_answers_are_kept_up_to_a_number_and_a_size_the_last_ones(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse_module, "ANSWERS_MAX", 8)
    monkeypatch.setattr(pulse_module, "ANSWERS_BYTES_MAX", 1000)
    with started(shop) as service:

        async def ask(*keys: int, nbytes: int = 0) -> list[int]:
            for key in keys:
                await service.pulse.shared(key, lambda: Rows(nbytes))
            await asyncio.sleep(0)
            return [*service.pulse._shared]

        def kept(*keys: int, nbytes: int = 0) -> list[int]:
            assert service.loop is not None
            return asyncio.run_coroutine_threadsafe(ask(*keys, nbytes=nbytes), service.loop).result()

        assert kept(*range(20)) == [*range(12, 20)]
        assert kept(12, 20) == [*range(14, 20), 12, 20]  # One that is asked for again is among the last.
        assert kept(*range(30, 40), nbytes=300) == [37, 38, 39]


def test_a_beat_forgets_what_nobody_asks_for_any_more(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse_module, "FORGET_SECONDS", 0.0)
    monkeypatch.setattr(pulse_module, "BEAT_SECONDS", 0.05)
    with started(shop) as service:
        assert service.loop is not None
        service.pulse._tidy = lambda: None  # type: ignore[method-assign]
        asyncio.run_coroutine_threadsafe(service.pulse.shared("key", lambda: 7), service.loop).result()
        del service.pulse._tidy  # So only the beat can do it.
        assert [*service.pulse._shared] == ["key"]
        with service.pulse.watching():
            eventually(lambda: not service.pulse._shared)


def test_nothing_is_kept_when_nobody_watches_any_more(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse_module, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(pulse_module, "LINGER_SECONDS", 0.1)
    with started(shop) as service:
        assert service.loop is not None
        with service.pulse.watching():
            asyncio.run_coroutine_threadsafe(service.pulse.shared("key", lambda: 7), service.loop).result()
        eventually(lambda: not service.pulse._shared)


def test_a_beat_knows_topics_views_runs_and_alerts(shop: Shop) -> None:
    service = Service(shop.settings)
    beat = read_beat(service, None, is_full=True)
    assert {"orders", "orders.dead", "products", "per_minute.changes"} == {*beat.topics}
    assert beat.topics["orders"].records == sum(orders for orders, _ in shop.rows.values())
    assert {name: each.lag for name, each in beat.views.items()} == {"per_minute": 0, "by_product": 0, "total": 0}
    assert [each.mode for each in beat.runs] == ["stream", "batch", "kappa"]
    assert beat.runs[0].is_alive(beat.at_us)
    assert [each.state for each in beat.entries] == ["waiting", "sent", "failed"]
    shop.step(behind=7)
    assert read_beat(service, None, is_full=False).lag == 14  # Of each of two partitions.
    service.work.close()
    service.log.close()


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.system)])
def test_a_database_older_than_runs_and_alerts_has_none_of_them(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    server: Server | None = request.getfixturevalue("postgresql") if kind == "postgresql" else None
    shop = make_shop(tmp_path, "" if server is None else server.new_database())
    service = Service(shop.settings)
    assert len(read_beat(service, None, is_full=True).runs) == 3
    shop.close()
    with open_store(shop.settings.views.url) as store, store.engine.begin() as connection:
        for table in (RUNS, ALERTS):
            connection.execute(sa.schema.DropTable(table))
    beat = read_beat(service, None, is_full=True)
    assert (beat.runs, beat.entries, beat.views_problem) == ((), (), "")
    assert beat.views
    service.work.close()
    service.log.close()


def test_events_of_the_time_before_come_from_the_log(shop: Shop) -> None:
    service = Service(shop.settings)
    beat = read_beat(service, None, is_full=True)
    points = earlier_points(service, beat, 600)
    grown = points[-1].totals["orders"] - points[0].totals["orders"]
    assert sum(170 + 10 * minute for minute in range(1, 9)) * 0.9 < grown < beat.topics["orders"].total
    assert all(late.totals["orders"] >= early.totals["orders"] for early, late in pairwise(points))
    assert {each.totals["products"] for each in points} == {0}
    assert max(each.lag or 0 for each in points) == 120  # What the run noted.
    service.work.close()
    service.log.close()


def test_rates_follow_what_is_appended(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse_module, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(pulse_module, "RATE_SECONDS", 30.0)  # Two beats fit into it, however slow this machine is.
    with started(shop) as service, service.pulse.watching():
        eventually(lambda: service.pulse.number >= 3)
        shop.orders(300)
        eventually(lambda: (service.pulse.rate("orders") or 0) > 5)
        eventually(lambda: service.pulse.rate("products") == 0)
        assert service.pulse.rate("no_such_topic") is None


def test_a_log_and_a_database_that_go_away_are_told_of_and_found_again(shop: Shop) -> None:
    service = Service(shop.settings)
    shop.close()
    database, log = shop.folder / "views.db", shop.folder / "log"
    assert read_beat(service, None, is_full=True).views
    for path in (database, log):
        shutil.move(path, path.with_suffix(".away"))
    beat = read_beat(service, None, is_full=True)
    assert (beat.topics, beat.views, beat.has_views) == ({}, {}, False)
    assert "There is no log here yet" in beat.log_problem
    for path in (database, log):
        shutil.move(path.with_suffix(".away"), path)
    beat = read_beat(service, None, is_full=True)
    assert beat.views
    assert beat.topics
    assert not beat.log_problem + beat.views_problem
    service.work.close()
    service.log.close()


def test_nothing_is_there_yet_is_no_failure(empty_shop: Shop) -> None:
    service = Service(empty_shop.settings)
    beat = read_beat(service, None, is_full=True)
    assert (beat.topics, beat.views, beat.runs, beat.has_views) == ({}, {}, (), False)
    service.work.close()
    service.log.close()


def test_speed_is_how_much_more_there_is() -> None:
    second = int(timedelta(seconds=1) / timedelta(microseconds=1))
    assert per_second([(0, 0), (second, 10), (2 * second, 10), (3 * second, 4)], second) == [
        (second, 10.0), (2 * second, 0.0), (3 * second, 0.0),
    ]  # fmt: skip
    points = [Point(number * second, {"a": number * 5.0}) for number in range(4)]
    assert [value for _, value in rates_of(points, "a", second)] == [5.0, 5.0, 5.0]
    assert rates_of(points, "b", second) == []


def test_a_pulse_that_never_beat_knows_nothing(empty_shop: Shop) -> None:
    service = Service(empty_shop.settings)
    assert Pulse(service).rates(["a"]) == {"a": None}
    service.work.close()
    service.log.close()
