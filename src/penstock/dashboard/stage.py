"""The stage: NiceGUI knows one application and one event loop in a process, so it has a thread of its own.

All services of a process play on the same stage. What a browser sends is carried over from the event loop of its
service, and answers are carried back; which service it belongs to is in the scope of each request. So a page that takes
its time never holds up the routes of the service.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from starlette.types import ASGIApp, Message, Receive, Scope, Send

T = TypeVar("T")

UNCONNECTED_SECONDS = 30.0
"""So old a page gets without a browser that is connected: long enough to be built and loaded over a slow line."""
LOOK_SECONDS = 5.0
TAB_SECONDS = 60.0
"""Nothing of ours is kept for a tab. NiceGUI keeps a place for it all the same, for 30 days if nobody says less."""
TAB_ID_MAX = 64
_lock = threading.Lock()
_stage: Stage | None = None


def stage() -> Stage:
    """The one of this process. It is set up at the first call, which takes about a second."""
    global _stage  # noqa: PLW0603
    with _lock:
        if _stage is None:
            _stage = Stage()
        return _stage


class Stage:
    """NiceGUI in a thread. It ends with the process."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._app: ASGIApp
        self.loop: asyncio.AbstractEventLoop
        threading.Thread(target=self._run, name="penstock-dashboard", daemon=True).start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request or runs a WebSocket, for a caller in any event loop."""
        home = asyncio.get_running_loop()

        async def received() -> Message:
            return await elsewhere(receive, home)

        async def sent(message: Message) -> None:
            await elsewhere(lambda: send(message), home)

        await elsewhere(lambda: self._app(scope, received, sent), self.loop)

    @property
    def unconnected(self) -> int:
        """How many pages are in memory that no browser is connected to, not yet or no more. For any thread."""
        from nicegui import Client

        return sum(not each.has_socket_connection for each in list(Client.instances.values()))

    def _run(self) -> None:
        asyncio.run(self._play())

    async def _play(self) -> None:
        try:
            app, lifespan = _nicegui()
            async with lifespan(app):
                self._app, self.loop = app, asyncio.get_running_loop()
                self._ready.set()
                while True:
                    await asyncio.sleep(LOOK_SECONDS)
                    _forget()
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._ready.set()


async def elsewhere(body: Callable[[], Awaitable[T]], loop: asyncio.AbstractEventLoop) -> T:
    """What the body gives, run in another event loop. Whoever is cancelled here is cancelled there."""

    async def run() -> T:
        return await body()

    running: Coroutine[Any, Any, T] = run()
    try:
        future = asyncio.run_coroutine_threadsafe(running, loop)
    except RuntimeError:  # That loop is closed.
        running.close()
        raise
    return await asyncio.wrap_future(future)


def _nicegui() -> tuple[Any, Any]:
    """The application of NiceGUI with our pages, and what starts and ends it."""
    from fastapi import FastAPI
    from fastapi.exception_handlers import http_exception_handler
    from nicegui import core, ui

    from penstock.dashboard import pages

    host = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    ui.run_with(
        host,
        title="Penstock",
        favicon=pages.ICON,
        dark=None,
        language="en-US",
        binding_refresh_interval=None,
        reconnect_timeout=5.0,
        message_history_length=100,
        gzip_middleware_factory=None,
        tailwind=False,
        show_welcome_message=False,
    )
    # Only WebSockets: a guarded one is checked once, and nothing has to be posted.
    core.app.config.socket_io_js_transports = ["websocket"]
    # It tells of addresses, and of whatever a browser sends it to tell. Failures are all that we want to know.
    logging.getLogger("nicegui").addFilter(lambda record: record.exc_info is not None)
    # Its own answer to what is not there would be one more page in memory.
    core.app.exception_handlers[404] = http_exception_handler
    core.app.storage.max_tab_storage_age = TAB_SECONDS
    _check_handshakes(core.sio)
    pages.register()
    return host, host.router.lifespan_context


def _forget() -> None:
    """Takes away pages that no browser has come for. NiceGUI does so too, after a minute."""
    from nicegui import Client

    Client.prune_instances(client_age_threshold=UNCONNECTED_SECONDS)


def _check_handshakes(sio: Any) -> None:
    """A page that was loaded ahead names its tab in an event, all others in their query, whose length is bounded."""
    shake = sio.handlers["/"]["handshake"]

    async def checked(sid: str, data: Any) -> bool:
        names = ("client_id", "tab_id", "document_id")
        if not isinstance(data, dict) or any(len(str(data.get(name, ""))) > TAB_ID_MAX for name in names):
            return False
        return bool(await shake(sid, data))

    sio.on("handshake", checked)
