"""The picture in a mail: the last windows of the first key, or bars of the rows that are told."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from penstock.alerts import chart
from penstock.alerts.chart import Series, chart_of, draw, series_of
from penstock.views.store import Store, open_store
from tests.alerts.waiting import entry
from tests.cli.stored_views import stored


@pytest.fixture
def views(tmp_path: Path) -> Store:
    return open_store(stored(tmp_path).views_url)


def series(store: Store, **changed: Any) -> Series | None:
    with store.snapshot() as snapshot:
        return series_of(snapshot, entry(**changed))


def test_a_windowed_view_is_drawn_over_its_last_windows(views: Store) -> None:
    window = {"start": "2026-01-01 12:05:00.000000", "end": "2026-01-01 12:06:00.000000"}
    found = series(views, view="hits", rows=[{"window": window, "url": "/1", "hits": 5, "paid": "14.00"}])
    assert found == Series(
        "hits, url=/1 (2026-01-01)", ["12:01", "12:03", "12:05", "12:07"], [9.0, 7.0, 5.0, 3.0], is_line=True
    )


def test_a_key_that_is_null_is_found_too(views: Store) -> None:
    found = series(views, view="hits", rows=[{"window": None, "url": None, "hits": 10, "paid": "9.00"}])
    assert found is not None
    assert found.values == [10.0]


def test_a_view_without_windows_is_drawn_as_bars(views: Store) -> None:
    assert series(views, view="total", rows=[{"hits": 52}]) == Series("hits of total", ["total"], [52.0], is_line=False)


@pytest.mark.parametrize(
    "changed",
    [{"view": "gone"}, {"view": "hits", "rows": []}, {"view": "total", "rows": [{"hits": None}]}],
)
def test_where_there_is_nothing_to_draw_there_is_no_picture(views: Store, changed: dict[str, Any]) -> None:
    assert series(views, **changed) is None
    assert chart_of(views, entry(**changed)) is None


def test_the_picture_is_a_png_that_shows_something(views: Store) -> None:
    picture = chart_of(views, entry(view="total", rows=[{"hits": 52}]))
    assert picture is not None
    image = Image.open(io.BytesIO(picture))
    assert image.format == "PNG"
    assert image.size == (1120, 448)
    assert len(image.convert("RGB").getcolors(1 << 20) or []) > 50


def test_a_value_that_looks_like_a_formula_is_drawn_as_text() -> None:
    names = ["$\\frac{", "a\nb", "<b>"]
    assert draw(Series("$x_$", names, [1, 2, 3], is_line=False)).startswith(b"\x89PNG")


def test_a_picture_that_cannot_be_drawn_keeps_no_mail_back(
    views: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: object) -> bytes:
        raise RuntimeError("no fonts")

    monkeypatch.setattr(chart, "draw", broken)
    assert chart_of(views, entry(view="total", rows=[{"hits": 52}])) is None
    assert "goes without a chart: no fonts" in caplog.text


def test_without_matplotlib_there_is_no_picture(views: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chart, "find_spec", lambda _: None)
    assert chart_of(views, entry(view="total", rows=[{"hits": 52}])) is None
