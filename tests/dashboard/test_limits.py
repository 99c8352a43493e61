"""Nobody can take the dashboard from others: not by reading nothing, not by leaving pages, not by choosing a lot."""

from __future__ import annotations

import asyncio
import functools
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import httpx
import nicegui
import pytest
import websockets
from nicegui import Client, core, ui
from nicegui.app.app import prune_tab_storage
from starlette.requests import Request
from starlette.types import Message
from websockets.sync import client as sockets

from penstock.clock import now_us
from penstock.dashboard import entrance
from penstock.dashboard import stage as stage_module
from penstock.dashboard.beat import Beat
from penstock.dashboard.entrance import Dashboard
from penstock.dashboard.screen import Screen
from penstock.dashboard.stage import TAB_SECONDS, UNCONNECTED_SECONDS, stage
from penstock.service.tokens import Tokens
from tests.dashboard.shop import Shop, started
from tests.eventually import LIMIT_SECONDS

T = TypeVar("T")
LIBRARY = f"/dashboard/_nicegui/{nicegui.__version__}/static/nicegui.js"
get = functools.partial(httpx.get, timeout=LIMIT_SECONDS)
connect = functools.partial(sockets.connect, open_timeout=LIMIT_SECONDS, ping_interval=None)
SOCKET = "/dashboard/_nicegui_ws/socket.io/?EIO=4&transport=websocket"


def on_stage(body: Callable[[], T]) -> T:
    """What it gives, called where NiceGUI is."""

    async def run() -> T:
        return body()

    return asyncio.run_coroutine_threadsafe(run(), stage().loop).result(LIMIT_SECONDS)


@pytest.fixture
def empty_stage() -> Iterator[None]:
    """No page of an earlier test is left."""

    def clear() -> None:
        for client in [*Client.instances.values()]:
            client.delete()

    on_stage(clear)
    yield
    on_stage(clear)


def scope_of(path: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
        "http_version": "1.1", "scheme": "http", "server": ("localhost", 80), "client": ("127.0.0.1", 1),
        "headers": [(b"host", b"localhost")], "penstock.nonce": "once", **more,
    }  # fmt: skip


async def nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


def page_of(url: str, path: str = "/dashboard/clocks") -> str:
    """The id of a page that was made for nobody."""
    answer = get(f"{url}{path}")
    assert answer.status_code == 200
    found: set[str] = {*re.findall(r"[0-9a-f]{8}-[0-9a-f-]{27}", answer.text)} & {*Client.instances}
    return found.pop()


@pytest.fixture
def service_url(steady_shop: tuple[Shop, str]) -> str:
    return steady_shop[1]


@contextmanager
def connected(url: str, page: str, tab: str) -> Iterator[None]:
    """A browser for it, as far as NiceGUI can see."""
    query = f"&implicit_handshake=true&client_id={page}&tab_id={tab}&document_id=d&next_message_id=0"
    with connect(url.replace("http", "ws", 1) + SOCKET + query) as socket:
        socket.recv(LIMIT_SECONDS)
        socket.send("40")
        while not str(socket.recv(LIMIT_SECONDS)).startswith("40"):
            pass

        def live() -> None:  # Without an answer to each ping it would be taken for gone.
            for message in socket:
                if message == "2":
                    socket.send("3")

        living = threading.Thread(target=live)
        living.start()
        yield
    living.join()


@pytest.mark.usefixtures("empty_stage")
@pytest.mark.parametrize("path", ["/dashboard/topics", LIBRARY])
def test_those_who_read_nothing_hold_up_nobody(shop: Shop, path: str) -> None:
    async def scene(dashboard: Dashboard) -> list[Message]:
        is_sending, answer = asyncio.Semaphore(0), []

        async def stuck(message: Message) -> None:
            is_sending.release()
            await asyncio.Event().wait()

        async def read(message: Message) -> None:
            answer.append(message)

        waiting = [asyncio.create_task(dashboard(scope_of(path), nothing, stuck)) for _ in range(entrance._PAGES)]
        for _ in waiting:
            await asyncio.wait_for(is_sending.acquire(), LIMIT_SECONDS)
        try:
            await asyncio.wait_for(dashboard(scope_of("/dashboard/topics"), nothing, read), LIMIT_SECONDS)
        finally:
            for each in waiting:
                each.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        return answer

    with started(shop) as service:
        assert service.loop is not None
        answer = asyncio.run_coroutine_threadsafe(scene(Dashboard(service)), service.loop).result()
        assert answer[0]["status"] == 200
        assert b'<script nonce="once"' in answer[1]["body"]


@pytest.mark.usefixtures("empty_stage")
def test_pages_nobody_connects_to_are_bounded_in_number(service_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entrance, "UNCONNECTED_MAX", 2)
    monkeypatch.setattr(stage_module, "UNCONNECTED_SECONDS", 600)  # However slow this machine is.
    first, _ = page_of(service_url), page_of(service_url)
    refused = get(f"{service_url}/dashboard/clocks")
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert get(f"{service_url}{LIBRARY}").status_code == 200
    with connected(service_url, first, "tab"):
        page_of(service_url)
        assert get(f"{service_url}/dashboard/clocks").status_code == 503


@pytest.mark.usefixtures("empty_stage")
def test_pages_nobody_connects_to_are_soon_forgotten(service_url: str) -> None:
    forget = stage_module._forget
    old, new, watched = page_of(service_url), page_of(service_url), page_of(service_url)
    with connected(service_url, watched, "tab"):
        for page in (old, watched):
            Client.instances[page].created -= UNCONNECTED_SECONDS
        Client.instances[new].created += 60  # However slow this machine is.
        on_stage(forget)
        assert {old, new, watched} & {*Client.instances} == {new, watched}


@pytest.mark.usefixtures("empty_stage")
@pytest.mark.parametrize("path", ["0.0.1/static/x", f"{nicegui.__version__}/dynamic_resources/x/y"])
def test_what_is_not_there_leaves_no_page(service_url: str, path: str) -> None:
    answer = get(f"{service_url}/dashboard/_nicegui/{path}")
    assert answer.status_code == 404
    assert not Client.instances


@pytest.mark.usefixtures("empty_stage")
@pytest.mark.parametrize(
    ("site", "mode", "dest", "purpose", "status"),
    [
        ("cross-site", "no-cors", "image", "", 403),
        ("cross-site", "navigate", "iframe", "", 403),
        ("cross-site", "navigate", "document", "prefetch", 403),
        ("same-site", "no-cors", "script", "", 403),
        ("cross-site", "navigate", "document", "", 200),
        ("same-origin", "cors", "empty", "", 200),
        ("none", "navigate", "document", "", 200),
    ],
)
def test_pages_of_others_may_link_here_and_load_nothing(
    service_url: str, site: str, mode: str, dest: str, purpose: str, status: int
) -> None:
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
    if purpose:
        headers["Sec-Purpose"] = purpose
    assert get(f"{service_url}/dashboard/clocks", headers=headers).status_code == status
    assert len(Client.instances) == (status == 200)


@pytest.mark.usefixtures("empty_stage")
def test_tabs_are_forgotten_after_a_minute(service_url: str) -> None:
    with connected(service_url, page_of(service_url), "a-tab"):
        tabs = core.app.storage._tabs
        tabs["a-tab"].last_modified -= TAB_SECONDS + 1
        asyncio.run_coroutine_threadsafe(prune_tab_storage(), stage().loop).result(LIMIT_SECONDS)
        assert TAB_SECONDS <= 60
        assert "a-tab" not in tabs


@pytest.mark.usefixtures("empty_stage")
def test_long_names_of_tabs_are_not_kept(service_url: str) -> None:
    long = "x" * 2000
    page = page_of(service_url)
    with pytest.raises(websockets.InvalidStatus) as caught:
        connect(f"{service_url.replace('http', 'ws', 1)}{SOCKET}&client_id={page}&tab_id={long}")
    assert caught.value.response.status_code == 400
    with connect(service_url.replace("http", "ws", 1) + SOCKET) as socket:  # As a page that was loaded ahead does it.
        socket.recv(LIMIT_SECONDS)
        socket.send("40")
        assert str(socket.recv(LIMIT_SECONDS)).startswith("40")
        for number, (tab, is_taken) in enumerate([(long, False), ("short", True)]):
            data = {"client_id": page, "tab_id": tab, "document_id": "d", "next_message_id": 0}
            socket.send(f"42{number}{json.dumps(['handshake', data])}")
            while not (told := str(socket.recv(LIMIT_SECONDS))).startswith("43"):
                pass
            assert told == f"43{number}[{json.dumps(is_taken)}]"
    assert long not in core.app.storage._tabs


def test_only_pages_that_connect_get_a_websocket(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(stage_module, "stage", lambda: asked.append("stage"))
    with shop.serving() as url:
        for path in ("/clocks", "/login", "/logout", "/static/shell.js", "/static/../_nicegui_ws/socket.io/"):
            with pytest.raises(websockets.InvalidStatus) as caught:
                connect(f"{url.replace('http', 'ws', 1)}/dashboard{path}?EIO=4&transport=websocket")
            assert caught.value.response.status_code == 404
            if path == "/clocks":  # The others are open to those without a token too.
                Tokens(shop.settings.serve.tokens_path).add("ada", ["read"])
    assert asked == []


@pytest.mark.usefixtures("empty_stage")
def test_however_much_is_chosen_a_page_is_refreshed_once_at_a_time_and_once_more(shop: Shop) -> None:
    chosen, shown, at_once = [0], [], [0, 0]

    async def scene(request: Request) -> None:
        with Client(ui.page(""), request=request):
            screen = Screen(request, "Topics", "Topics")
        may_end = asyncio.Event()

        async def refresh(beat: Beat) -> None:
            at_once[0] += 1
            at_once[1] = max(at_once)
            shown.append(chosen[0])
            await may_end.wait()
            at_once[0] -= 1

        screen.live(refresh)
        for number in range(50):
            chosen[0] = number
            screen.again()
            await asyncio.sleep(0)
        may_end.set()
        while screen._is_refreshing:
            await asyncio.sleep(0.01)
        screen.again()  # It is not over for good.
        while screen._is_refreshing:
            await asyncio.sleep(0.01)

    with started(shop) as service:
        service.pulse.beat = Beat(now_us())
        request = Request(scope_of("/dashboard/topics", **{"penstock.service": service}))
        asyncio.run_coroutine_threadsafe(scene(request), stage().loop).result(LIMIT_SECONDS)
    assert at_once == [0, 1]
    assert len(shown) == 3
    assert shown[1:] == [49, 49]
