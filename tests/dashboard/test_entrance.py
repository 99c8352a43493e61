"""What of /dashboard is answered, to whom, and how it is kept safe; without a browser."""

from __future__ import annotations

import functools
import re
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
import websockets
from websockets.sync import client as sockets

from penstock.dashboard.sessions import SECONDS, Sessions, cookie, cookie_name
from penstock.service.tokens import Tokens
from penstock.testing import ManualClock
from tests.dashboard.shop import PLANTED, Shop, make_shop
from tests.eventually import LIMIT_SECONDS

PAGES = [
    "", "/", "/pipeline", "/topics", "/topics/orders", "/views", "/views/per_minute", "/views/by_product",
    "/views/total", "/clocks", "/runs", "/alerts", "/alerts/shop/many_orders/1",
]  # fmt: skip
PAGE = {"Accept": "text/html"}
get = functools.partial(httpx.get, timeout=LIMIT_SECONDS)
post = functools.partial(httpx.post, timeout=LIMIT_SECONDS)
request = functools.partial(httpx.request, timeout=LIMIT_SECONDS)
connect = functools.partial(sockets.connect, open_timeout=LIMIT_SECONDS)


def tokens_of(shop: Shop) -> Tokens:
    return Tokens(shop.settings.serve.tokens_path)


@pytest.mark.parametrize("path", PAGES)
def test_every_page_comes_with_its_numbers_and_a_strict_policy(steady_shop: tuple[Shop, str], path: str) -> None:
    answer = get(f"{steady_shop[1]}/dashboard{path}")
    assert answer.status_code == 200
    assert "cannot be brought up to date" not in answer.text
    policy = answer.headers["content-security-policy"]
    [nonce] = re.findall(r"'nonce-([\w-]+)'", policy)
    assert "unsafe-eval" not in policy
    assert "script-src 'self' 'nonce-" in policy
    scripts = re.findall(r"<script[^>]*>", answer.text)
    assert scripts
    assert all(f'nonce="{nonce}"' in script for script in scripts)
    assert PLANTED not in answer.text
    assert "<img src=x" not in answer.text
    assert not re.findall(r"(?:src|href)=\"(?:https?:)?//", answer.text)


def test_a_topic_shows_its_groups_and_what_is_late_and_dead(shop: Shop) -> None:
    with shop.log() as log, log.consumer("orders", group="billing") as consumer:
        for _, _ in zip(range(5), consumer.events(timeout="1h"), strict=False):
            pass
        consumer.commit()
    with shop.serving() as url:
        page = get(f"{url}/dashboard/topics/orders").text
        assert "billing" in page
        assert "late: 6 min 40 s" in page
        assert "expected timestamp" in page


def test_the_nonce_is_another_one_each_time(steady_shop: tuple[Shop, str]) -> None:
    answers = [get(f"{steady_shop[1]}/dashboard/topics") for _ in range(2)]
    assert len({each.headers["content-security-policy"] for each in answers}) == 2


def test_the_bare_address_leads_to_the_dashboard(steady_shop: tuple[Shop, str]) -> None:
    answer = get(steady_shop[1])
    assert (answer.status_code, answer.headers["location"]) == (307, "/dashboard")


def test_nothing_a_proxy_says_gets_into_the_page(steady_shop: tuple[Shop, str]) -> None:
    answer = get(f"{steady_shop[1]}/dashboard", headers={"X-Forwarded-Prefix": "/evil"})
    assert "/evil" not in answer.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_the_dashboard_is_only_looked_at(steady_shop: tuple[Shop, str], method: str) -> None:
    assert request(method, f"{steady_shop[1]}/dashboard/views").status_code == 405


@pytest.mark.parametrize(
    "path", ["/static/nope.js", "/static/../pages.py", "/static/%2e%2e/pages.py", "/hush-hush", "/alerts/hush-hush",
             "/_nicegui/hush-hush", "/_nicegui/3.18.0/static/hush-hush", "/_nicegui/3.18.0/components/hush-hush"]
)  # fmt: skip
def test_what_is_not_there_is_not_found_and_not_told_of(
    steady_shop: tuple[Shop, str], path: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    answer = get(f"{steady_shop[1]}/dashboard{path}")
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("application/json")
    told = [each for each in caplog.records if each.name.split(".")[0] not in ("httpx", "httpcore")]
    assert not any("hush-hush" in each.getMessage() for each in told)


def test_names_and_origins_that_are_not_known_are_refused_here_too(steady_shop: tuple[Shop, str]) -> None:
    url = f"{steady_shop[1]}/dashboard"
    assert get(url, headers={"Host": "evil.example"}).status_code == 421
    assert get(url, headers={"Origin": "https://evil.example"}).status_code == 403
    socket = url.replace("http", "ws", 1) + "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
    with pytest.raises(websockets.InvalidStatus) as caught:
        connect(socket, origin=websockets.Origin("https://evil.example"))
    assert caught.value.response.status_code == 403
    assert get(f"{url}/_nicegui_ws/socket.io/?EIO=4&transport=polling").status_code == 405


def test_with_a_token_pages_lead_to_the_login_and_everything_else_is_refused(shop: Shop) -> None:
    tokens_of(shop).add("ada", ["read"])
    with shop.serving() as url:
        answer = get(f"{url}/dashboard/views/per_minute", headers=PAGE)
        assert (answer.status_code, answer.headers["location"]) == (
            303,
            "/dashboard/login?next=/dashboard/views/per_minute",
        )
        assert get(f"{url}/dashboard/views").status_code == 401
        assert get(f"{url}/dashboard/_nicegui/3.18.0/static/nicegui.js").status_code == 401
        assert get(f"{url}/dashboard/login", headers=PAGE).status_code == 200
        assert get(f"{url}/dashboard/static/dashboard.css").status_code == 200
        with pytest.raises(websockets.InvalidStatus) as caught:
            connect(f"{url.replace('http', 'ws', 1)}/dashboard/_nicegui_ws/socket.io/?EIO=4&transport=websocket")
        assert caught.value.response.status_code == 401


def test_a_session_looks_and_reads_but_never_writes(shop: Shop) -> None:
    secret = tokens_of(shop).add("ada", ["admin"])
    # uvicorn closes a connection that is idle for 5 s. The client must not use it again at that moment.
    limits = httpx.Limits(keepalive_expiry=1)
    with shop.serving() as url, httpx.Client(base_url=url, limits=limits, timeout=LIMIT_SECONDS) as client:
        refused = client.post("/dashboard/login", data={"token": "pst_wrong"})
        assert (refused.status_code, "set-cookie" in refused.headers) == (403, False)
        answer = client.post("/dashboard/login", data={"token": f" {secret}\n", "next": "/dashboard/views"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard/views")
        set_cookie = answer.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=Strict", "Path=/", f"Max-Age={SECONDS}"} <= {*set_cookie.split("; ")}
        assert "Secure" not in set_cookie
        assert secret not in set_cookie
        page = client.get("/dashboard/views", headers=PAGE)
        assert page.status_code == 200
        assert secret not in page.text
        assert client.get("/views").status_code == 200
        assert client.get("/metrics").status_code == 401
        assert client.post("/topics/orders", json={"customer": "eve"}).status_code == 401
        assert client.get("/views", headers={"Sec-Fetch-Site": "same-site"}).status_code == 401
        header = {"Cookie": set_cookie.partition(";")[0]}
        stream = f"{url.replace('http', 'ws', 1)}/topics/orders"
        with connect(stream, additional_headers=header, close_timeout=0.5) as socket:  # More comes than it reads.
            assert "customer" in str(socket.recv(LIMIT_SECONDS))
        assert client.post("/dashboard/logout").status_code == 303
        assert get(f"{url}/views", headers=header).status_code == 401


def test_behind_tls_the_cookie_is_only_sent_over_tls(shop: Shop) -> None:
    secret = tokens_of(shop).add("ada", ["read"])
    with shop.serving(allowed_hosts="views.example.org") as url:
        headers = {"Host": "views.example.org", "Origin": "https://views.example.org"}
        answer = post(f"{url}/dashboard/login", data={"token": secret}, headers=headers)
        assert answer.headers["set-cookie"].startswith("penstock=")
        assert "Secure" in answer.headers["set-cookie"].split("; ")


def test_a_login_leads_nowhere_else(shop: Shop) -> None:
    secret = tokens_of(shop).add("ada", ["read"])
    with shop.serving() as url:
        elsewhere = ("https://evil.example/dashboard/", "//evil.example", "/dashboard\\@evil", "/views", "/dashboardx")
        for after in elsewhere:
            answer = post(f"{url}/dashboard/login", data={"token": secret, "next": after})
            assert answer.headers["location"] == "/dashboard"
        assert "evil" not in get(f"{url}/dashboard/login", params={"next": '"><script>evil'}).text


def test_a_session_ends_with_its_token_its_time_and_its_signature(tmp_path: Path) -> None:
    tokens, clock = Tokens(tmp_path / "tokens.json"), ManualClock()
    sessions = Sessions(tokens, clock=clock)
    assert sessions.begin(tokens.add("writer", ["write"])) is None
    value = sessions.begin(tokens.add("ada", ["read"]))
    assert value is not None
    found = sessions.find(value)
    assert found is not None
    assert found.token == "ada"
    assert Sessions(tokens, clock=clock).find(value) == found  # As after a restart.
    name, expires, number, signature = value.split("~")
    rest = f"{number}~{signature}"
    for forged in (
        f"writer~{expires}~{rest}", f"{name}~{int(expires) + 1}~{rest}", f"{name}~{expires}~{number}~", "", "~~~",
        f"{name}~{'9' * 30}~{rest}", f"{value}\u00e9",
    ):  # fmt: skip
        assert sessions.find(forged) is None
    clock.move(timedelta(seconds=SECONDS))
    assert sessions.find(value) is None
    clock.move(timedelta(seconds=-SECONDS))
    assert sessions.find(value) == found
    tokens.remove("ada")
    tokens.add("ada", ["read"])
    assert sessions.find(value) is None
    assert not sessions.holds(found)


def test_cookies_of_two_ports_do_not_meet() -> None:
    assert cookie_name("127.0.0.1:1") != cookie_name("127.0.0.1:2")
    assert (
        cookie("[::1]", "x", is_secure=True) == "penstock=x; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200; Secure"
    )


def test_two_services_in_one_process_show_their_own(tmp_path: Path) -> None:
    shops = [make_shop(tmp_path / name) for name in ("left", "right")]
    with shops[1].log() as log:
        log.create("only_right", "n int")
    with shops[0].serving() as left, shops[1].serving() as right:
        pages = [get(f"{url}/dashboard/topics").text for url in (left, right)]
    assert ["only_right" in page for page in pages] == [False, True]
    for shop in shops:
        shop.close()
