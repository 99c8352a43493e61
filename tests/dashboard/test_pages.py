"""The pages as people use them: a real browser, live numbers, the keyboard, a phone, both themes."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page

from penstock.dashboard import pulse
from penstock.dashboard.beat import Beat, read_beat
from penstock.service.service import Service
from penstock.service.tokens import Tokens
from tests.conftest import ROOT
from tests.dashboard.browser import PHONE, Watched, opened, settled
from tests.dashboard.screenshots import PAGES
from tests.dashboard.shop import PLANTED, Shop, new_shop
from tests.eventually import LIMIT_SECONDS, eventually

pytestmark = pytest.mark.services

AXE = ROOT / ".venv" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
NAVIGATION = ["Overview", "Pipeline", "Topics", "Views", "Clocks", "Runs", "Alerts"]


def text_of(page: Page) -> str:
    return page.inner_text("main")


def is_clean(watched: Watched, url: str) -> None:
    assert watched.complaints == []
    assert watched.hosts == {url.removeprefix("http://")}
    assert watched.page.evaluate("() => window.planted") is None


@pytest.mark.parametrize("name", [*PAGES])
def test_a_page_loads_from_here_alone_and_complains_of_nothing(
    chromium: Browser, steady_shop: tuple[Shop, str], name: str
) -> None:
    url = steady_shop[1]
    with opened(chromium) as watched:
        settled(watched.page, f"{url}/dashboard{PAGES[name]}")
        watched.page.wait_for_timeout(1500)
        assert watched.page.locator("h1").count() == 1
        assert watched.page.locator(".banner:visible").count() == 0
        is_clean(watched, url)


@pytest.mark.parametrize("name", ["topic", "view", "bars", "runs", "alerts", "alert"])
def test_what_is_planted_stays_text(chromium: Browser, steady_shop: tuple[Shop, str], name: str) -> None:
    with opened(chromium) as watched:
        page = watched.page
        settled(page, f"{steady_shop[1]}/dashboard{PAGES[name]}")
        eventually(lambda: "onerror=" in page.inner_text("body"))
        for details in page.locator("details.data summary").all():
            details.click()
        for chart in page.locator(".chart svg[role=img]").all():
            chart.hover()
        page.wait_for_timeout(300)
        assert page.locator("img[onerror], main script").count() == 0
        is_clean(watched, steady_shop[1])


def test_numbers_move_when_events_are_appended(chromium: Browser, shop: Shop) -> None:
    with shop.serving() as url, opened(chromium) as topics, opened(chromium) as views, opened(chromium) as view:
        settled(topics.page, f"{url}/dashboard/topics/orders")
        settled(views.page, f"{url}/dashboard")
        settled(view.page, f"{url}/dashboard/views/total")
        total = sum(orders for orders, _ in shop.rows.values())
        for _ in range(3):
            shop.orders(500)
        tile = "dl.tiles .tile:has(dt:text-is('Events')) dd:not(.unit)"
        eventually(lambda: float(views.page.inner_text(tile).replace("\u202f", "")) > 20)
        eventually(lambda: f"{total + 1500:,}".replace(",", "\u202f") in text_of(topics.page))
        lag = "dl.tiles .tile:has(dt:text-is('Lag')) dd:not(.unit)"
        eventually(lambda: views.page.inner_text(lag) == "1\u202f500")
        shop.step()
        eventually(lambda: views.page.inner_text(lag) == "0")
        eventually(lambda: f"{total + 1500:,}".replace(",", "\u202f") in text_of(view.page))


def test_rows_are_sorted_filtered_and_paged(chromium: Browser, steady_shop: tuple[Shop, str]) -> None:
    with opened(chromium) as watched:
        page = watched.page
        settled(page, f"{steady_shop[1]}/dashboard/views/by_product")
        rows = page.locator("section:has(h2:text-is('Rows')) tbody tr")
        page.get_by_role("button", name="sold").click()
        eventually(lambda: rows.first.inner_text().startswith("tea"))
        assert page.locator("th[aria-sort=descending]").inner_text().startswith("sold")
        page.get_by_role("button", name="Next").click()
        eventually(lambda: "Rows 26 to 44" in text_of(page))
        page.get_by_role("button", name="Back").click()
        eventually(lambda: "Rows 1 to 25" in text_of(page))
        page.get_by_label("Only rows where").select_option("sold")
        page.get_by_label("Comparison").select_option(">=")
        page.get_by_label("Value").fill("300")
        page.get_by_label("Value").press("Enter")
        eventually(lambda: rows.count() == 3)
        page.get_by_label("Value").fill("many")
        page.get_by_label("Value").press("Enter")
        eventually(lambda: page.locator("[role=alert]:visible").count() == 1)
        page.get_by_label("Value").fill("400")
        page.get_by_label("Value").press("Enter")
        eventually(lambda: rows.count() == 2)
        assert page.locator("[role=alert]:visible").count() == 0


def test_a_corrected_window_is_marked_and_the_page_says_what_that_means(chromium: Browser, shop: Shop) -> None:
    with shop.serving() as url, opened(chromium) as watched:
        settled(watched.page, f"{url}/dashboard/views/per_minute")
        assert watched.page.locator("svg .mark").count() == 0
        assert "corrected after it closed" in text_of(watched.page)
        watched.page.get_by_label("Groups").select_option("8")
        shop.correct()
        eventually(lambda: watched.page.locator("svg .mark").count() == 1)
        label = watched.page.locator("svg[role=img]").get_attribute("aria-label") or ""
        assert "orders by window" in label
        watched.page.get_by_label("Column").select_option("amount")
        eventually(lambda: "amount by" in (watched.page.locator("svg[role=img]").get_attribute("aria-label") or ""))


def test_late_records_have_another_colour_and_shape(chromium: Browser, steady_shop: tuple[Shop, str]) -> None:
    with opened(chromium) as watched:
        settled(watched.page, f"{steady_shop[1]}/dashboard/clocks")
        eventually(lambda: watched.page.locator("svg[role=img] path.dot").count() > 0)
        assert watched.page.locator("svg[role=img] circle.dot").count() > 100
        fills = [
            watched.page.locator(f"svg[role=img] {shape}.dot").first.evaluate("each => getComputedStyle(each).fill")
            for shape in ("path", "circle")
        ]
        assert fills[0] != fills[1]


def test_everything_can_be_reached_with_the_keyboard(chromium: Browser, steady_shop: tuple[Shop, str]) -> None:
    with opened(chromium) as watched:
        page = watched.page
        settled(page, f"{steady_shop[1]}/dashboard")
        page.keyboard.press("Tab")
        assert page.evaluate("() => document.activeElement.textContent") == "Skip to the content"
        page.keyboard.press("Enter")
        assert page.evaluate("() => document.activeElement.id") == "main"
        page.reload()
        settled(page, f"{steady_shop[1]}/dashboard")
        seen = []
        for _ in range(12):
            page.keyboard.press("Tab")
            seen.append(page.evaluate("() => document.activeElement.textContent"))
            outline = page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none" or seen[-1] == ""
            if seen[-1] == "Views":
                break
        assert [each for each in seen if each in NAVIGATION] == NAVIGATION[:4]
        page.keyboard.press("Enter")
        page.wait_for_url("**/dashboard/views")
        assert page.inner_text("h1") == "Views"
        assert page.locator("nav a[aria-current=page]").inner_text() == "Views"


@pytest.mark.parametrize("name", [*PAGES])
def test_a_phone_has_no_horizontal_scroll_and_a_drawer(
    chromium: Browser, steady_shop: tuple[Shop, str], name: str
) -> None:
    with opened(chromium, viewport=PHONE, has_touch=True) as watched:
        page = watched.page
        settled(page, f"{steady_shop[1]}/dashboard{PAGES[name]}")
        page.wait_for_timeout(500)
        assert page.evaluate("() => document.documentElement.scrollWidth") <= PHONE["width"]
        assert not page.locator("nav").is_visible()
        menu = page.get_by_role("button", name="Menu")
        menu.click()
        assert page.locator("nav a").all_inner_texts() == NAVIGATION
        assert menu.get_attribute("aria-expanded") == "true"
        page.keyboard.press("Escape")
        assert not page.locator("nav").is_visible()
        assert page.evaluate("() => document.activeElement.id") == "menu"


def test_the_theme_is_that_of_the_system_until_it_is_switched_and_that_is_remembered(
    chromium: Browser, steady_shop: tuple[Shop, str]
) -> None:
    with opened(chromium, color_scheme="dark") as watched:
        page = watched.page

        def background() -> int:
            return int(
                page.evaluate("() => getComputedStyle(document.body).backgroundColor").split("(")[1].split(",")[0]
            )

        settled(page, f"{steady_shop[1]}/dashboard")
        assert background() < 40
        page.emulate_media(color_scheme="light")
        assert background() > 200
        page.get_by_label("Theme").select_option("dark")
        assert background() < 40
        settled(page, f"{steady_shop[1]}/dashboard/runs")
        assert background() < 40
        assert page.get_by_label("Theme").input_value() == "dark"
        page.get_by_label("Theme").select_option("light")
        page.emulate_media(color_scheme="dark")
        assert background() > 200


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", [*PAGES])
def test_axe_finds_no_serious_violation(
    chromium: Browser, steady_shop: tuple[Shop, str], name: str, scheme: Any
) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed (apt install npm, then make service-tools)")
    with opened(chromium, color_scheme=scheme, reduced_motion="reduce") as watched:
        settled(watched.page, f"{steady_shop[1]}/dashboard{PAGES[name]}")
        watched.page.wait_for_timeout(800)
        watched.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = watched.page.evaluate("() => axe.run()")
        serious = [
            (each["id"], [node["html"][:200] for node in each["nodes"][:3]])
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
        ]
        assert serious == [], json.dumps(serious, indent=1)


def test_one_logs_in_looks_and_logs_out(chromium: Browser, shop: Shop) -> None:
    secret = Tokens(shop.settings.serve.tokens_path).add("ada", ["read"])
    with shop.serving() as url, opened(chromium) as watched:
        page = watched.page
        page.goto(f"{url}/dashboard/views")
        assert page.inner_text("h1") == "Penstock"
        page.get_by_label("Token").fill("pst_wrong")
        page.get_by_role("button", name="Log in").click()
        assert "not known here" in page.inner_text("[role=alert]")
        page.get_by_label("Token").fill(secret)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url("**/dashboard/views")
        eventually(lambda: "per_minute" in page.inner_text("body"))
        assert secret not in page.content()
        assert secret not in str(page.evaluate("() => [document.cookie, {...localStorage}, {...sessionStorage}]"))
        streamed = page.evaluate(
            "() => new Promise(done => { const stream = new EventSource('/topics/orders');"
            " stream.addEventListener('record', event => { stream.close(); done(event.data); }); })"
        )
        assert "customer" in streamed
        page.get_by_role("button", name="Log out").click()
        page.wait_for_url("**/dashboard/login")
        page.goto(f"{url}/dashboard")
        assert "/dashboard/login" in page.url


def test_a_page_that_is_open_ends_with_its_token(chromium: Browser, shop: Shop) -> None:
    tokens = Tokens(shop.settings.serve.tokens_path)
    secret = tokens.add("ada", ["read"])
    tokens.add("other", ["read"])
    with shop.serving() as url, opened(chromium) as watched:
        page = watched.page
        page.goto(f"{url}/dashboard/login")
        page.get_by_label("Token").fill(secret)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_selector("main h1:text-is('Overview')")
        eventually(lambda: page.evaluate("() => window.did_handshake === true"))
        tokens.remove("ada")
        page.wait_for_url("**/dashboard/login*")


def test_a_restarted_service_is_found_again_by_an_open_page(chromium: Browser, shop: Shop) -> None:
    with opened(chromium) as watched:
        page = watched.page
        with shop.serving() as url:
            settled(page, f"{url}/dashboard/topics")
            assert "only_later" not in text_of(page)
        page.wait_for_selector("#popup[aria-hidden=false]")
        with shop.log() as log:
            log.create("only_later", "n int")
        port = int(url.rpartition(":")[2])
        with shop.serving(port=port):
            eventually(lambda: "only_later" in page.inner_text("body"))


def test_a_page_that_is_closed_is_no_longer_read_for(
    chromium: Browser, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_for: list[Service] = []

    def counted(service: Service, *given: Any, **named: Any) -> Beat:
        read_for.append(service)
        return read_beat(service, *given, **named)

    monkeypatch.setattr(pulse, "read_beat", counted)
    monkeypatch.setattr(pulse, "LINGER_SECONDS", 1.0)
    with shop.serving() as url:
        with opened(chromium) as watched:
            settled(watched.page, f"{url}/dashboard")
            eventually(lambda: len(read_for) > 3)
        eventually(lambda: not read_for[0].pulse.is_running)


def test_empty_places_say_so_and_fill_by_themselves(chromium: Browser, empty_shop: Shop) -> None:
    with empty_shop.serving() as url, opened(chromium) as watched, opened(chromium) as other:
        settled(watched.page, f"{url}/dashboard/topics")
        assert "There is no log here yet" in text_of(watched.page)
        assert "There is no topic yet" in text_of(watched.page)
        for path, said in {
            "": "Nothing runs at the moment", "/pipeline": "There is no view yet", "/views": "There is no view yet",
            "/clocks": "There is no topic yet", "/runs": "No run has noted itself", "/alerts": "No alert was raised",
            "/topics/nope": "It is not there", "/views/nope": "There is no view of this name",
        }.items():  # fmt: skip
            settled(other.page, f"{url}/dashboard{path}")
            assert said in text_of(other.page)
        with empty_shop.log() as log:
            log.create("fresh", "n int")
        eventually(lambda: "fresh" in text_of(watched.page))
        eventually(lambda: "There is no log here yet" not in text_of(watched.page))
        assert watched.complaints == []


def test_a_database_that_goes_away_is_told_of_and_found_again(chromium: Browser, shop: Shop) -> None:
    with shop.serving() as url, opened(chromium) as watched:
        settled(watched.page, f"{url}/dashboard/views")
        assert "per_minute" in text_of(watched.page)
        shop.close()
        database = shop.folder / "views.db"
        shutil.move(database, shop.folder / "away.db")
        eventually(lambda: "There is no view yet" in text_of(watched.page))
        shutil.move(shop.folder / "away.db", database)
        eventually(lambda: "per_minute" in text_of(watched.page))


def test_a_database_that_does_not_answer_is_told_of(chromium: Browser, shop: Shop) -> None:
    from penstock.settings import ViewsSettings

    away = replace(shop.settings, views=ViewsSettings(url="postgresql://user:hush-hush@127.0.0.1:1/views"))
    with replace(shop, settings=away).serving() as url, opened(chromium) as watched:
        settled(watched.page, f"{url}/dashboard/topics")
        eventually(lambda: "The database of views does not answer" in text_of(watched.page))
        assert "hush-hush" not in watched.page.content()
        assert "orders" in text_of(watched.page)


def test_a_definition_is_drawn_before_anything_has_run(chromium: Browser, tmp_path: Any) -> None:
    from penstock.pipeline.pipeline import Pipeline
    from penstock.service.server import serving

    app = Pipeline("drawn")
    app.topic("clicks", "n int")
    app.table("prices", "prices.csv")
    app.view("cheap", sql="SELECT n FROM clicks JOIN prices USING (n)")
    shop = new_shop(tmp_path)
    with shop.log() as log:
        log.create("hidden", "n int")
    with serving(shop.settings, app) as url, opened(chromium) as watched:
        settled(watched.page, f"{url}/dashboard/pipeline")
        assert {*watched.page.locator(".diagram .title").all_text_contents()} == {"clicks", "prices", "cheap"}
        assert httpx.get(f"{url}/topics", timeout=LIMIT_SECONDS).json()["topics"] == []
        assert httpx.get(f"{url}/topics/hidden", timeout=LIMIT_SECONDS).status_code == 404
        assert PLANTED not in watched.page.content()
