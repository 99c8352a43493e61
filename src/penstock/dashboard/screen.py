"""A screen: one page in one browser. It has the frame that all pages share, and is brought up to date while open."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any, TypeVar

from nicegui import background_tasks, context
from starlette.requests import Request

from penstock.clock import now_us
from penstock.dashboard.beat import Beat, told
from penstock.dashboard.login import VERSION
from penstock.dashboard.markup import Tag
from penstock.dashboard.pulse import BEAT_SECONDS, Pulse
from penstock.dashboard.sheet import address
from penstock.dashboard.stage import elsewhere
from penstock.errors import PenstockError, RequestRefused
from penstock.service.service import Service

T = TypeVar("T")
Refresh = Callable[[Beat], Awaitable[None] | None]
logger = logging.getLogger("penstock.dashboard")

PAGES = (
    ("Overview", ()),
    ("Pipeline", ("pipeline",)),
    ("Topics", ("topics",)),
    ("Views", ("views",)),
    ("Clocks", ("clocks",)),
    ("Runs", ("runs",)),
    ("Alerts", ("alerts",)),
)
HEAD = (
    f'<script src="/dashboard/static/shell.js?{VERSION}"></script>'
    f'<link rel="stylesheet" href="/dashboard/static/dashboard.css?{VERSION}">'
)
FIRST_SECONDS = 2.5
"""So long a page waits for its first numbers before it is sent without them."""
FRESH_US = 3_000_000


class Screen:
    """One page that is open. Its service comes with the request, so several services may share a process."""

    def __init__(self, request: Request, page: str, title: str, about: str = "") -> None:
        self.service: Service = request.scope["penstock.service"]
        self.pulse: Pulse = self.service.pulse
        self._cookie_session = request.scope.get("penstock.session")
        self._client = context.client
        self._refreshers: list[Refresh] = []
        self._seen = -1
        self._is_refreshing = self._is_asked_again = False
        self._watch = ExitStack()
        self._watch.enter_context(self.pulse.watching())
        self._client.on_delete(self._watch.close)
        self._client.title = f"{title} · Penstock"
        self._client._head_html += HEAD
        self._frame(page, title, about)

    # --- for pages ---

    def live(self, refresh: Refresh) -> None:
        """Called at every beat while the page is open, with what was read."""
        self._refreshers.append(refresh)

    async def read(self, key: Any, body: Callable[[], T], version: object = None) -> T:
        """What the body reads in a work thread of the service; screens that read the same at once share it.

        It is not read again while the `version` stays what it was.
        """
        loop = self.service.loop
        if loop is None or loop.is_closed():
            raise RequestRefused(503, "the service is stopping", "it is looked for again", is_retryable=True)
        return await elsewhere(lambda: self.pulse.shared(key, body, version), loop)

    def again(self) -> None:
        """Something was chosen: bring the page up to date now, or once more if that is under way."""
        if self.pulse.beat is not None and self._is_my_turn():
            background_tasks.create(self._refresh(), name="dashboard choice", context=self.main)

    async def begin(self) -> None:
        """Fills in what is known, and keeps it true for as long as the page is open."""
        deadline = asyncio.get_running_loop().time() + FIRST_SECONDS
        while self._fresh() is None and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.03)
        if self._fresh() is not None and self._is_my_turn():
            await self._refresh()
        background_tasks.create(self._run(), name="dashboard screen")

    # --- keeping it true ---

    def _fresh(self) -> Beat | None:
        beat = self.pulse.beat
        return beat if beat is not None and now_us() - beat.at_us < FRESH_US else None

    async def _run(self) -> None:
        client = self._client
        while not client.is_deleted:
            await asyncio.sleep(BEAT_SECONDS / 2)
            if self.service.bell.is_stopping:
                self._forget()  # So that a browser that comes back to another service gets a new page.
                return
            if not self._may_look():
                client.open("/login")
                await asyncio.sleep(0.5)
                self._forget()  # Whoever stays here all the same has no page any more.
                return
            if not client.has_socket_connection or self.pulse.number == self._seen or self.pulse.beat is None:
                continue
            self._seen = self.pulse.number
            if self._is_my_turn():
                with client:
                    await self._refresh()

    def _forget(self) -> None:
        """The page is gone on our side: no event of it is heard, and nothing is sent to it."""
        if not self._client.is_deleted:
            for waiting in self._client._delete_tasks.values():
                waiting.cancel()
            self._client.delete()

    def _may_look(self) -> bool:
        """Whether the token that opened this page is still one. Without tokens everybody on this machine may."""
        try:
            if self._cookie_session is None:
                return not self.service.needs_token and not self.service.tokens.all()
            sessions = self.service.sessions
            return sessions.holds(self._cookie_session)
        except PenstockError:
            return False

    def _is_my_turn(self) -> bool:
        """Whether the caller is to refresh. If somebody does already, it is remembered that it is to be done again.

        So what a browser sends, however much, costs one reading at a time, and what was chosen last is shown.
        """
        self._is_asked_again = self._is_refreshing
        is_mine, self._is_refreshing = not self._is_refreshing, True
        return is_mine

    async def _refresh(self) -> None:
        try:
            self._is_asked_again = True
            while self._is_asked_again and self.pulse.beat is not None and not self._client.is_deleted:
                self._is_asked_again = False
                await self._refresh_once(self.pulse.beat)
        finally:
            self._is_refreshing = False

    async def _refresh_once(self, beat: Beat) -> None:
        problems = [each for each in (beat.log_problem, beat.views_problem) if each]
        for refresh in self._refreshers:
            try:
                result = refresh(beat)
                if result is not None:
                    await result
            except PenstockError as error:
                problems.append(told(error))
            except Exception:
                logger.exception("dashboard: a page cannot be brought up to date")
                problems.append("This page cannot be brought up to date; the logging of the service says more.")
        self._banner.say(" ".join(dict.fromkeys(problems)))

    # --- the frame ---

    def _frame(self, page: str, title: str, about: str) -> None:
        Tag("a", "Skip to the content", "skip", href="#main")
        with Tag("div", classes="shell"):
            with Tag("header", classes="top"):
                Tag(
                    "button",
                    "Menu",
                    "menu",
                    id="menu",
                    type="button",
                    aria_expanded="false",
                    aria_controls="navigation",
                )
                with Tag("a", classes="brand", href=address(), aria_label="Penstock, overview"):
                    Tag("img", src="/dashboard/static/icon.svg", alt="")
                    Tag("span", "Penstock")
                if self.service.pipeline is not None:
                    Tag("span", self.service.pipeline.name, "pipeline-name")
                Tag("span", classes="space")
                Tag("label", "Theme", "hidden-text", for_="theme")
                with Tag("select", id="theme"):
                    for value, text in (("system", "System"), ("light", "Light"), ("dark", "Dark")):
                        Tag("option", text, value=value)
                if self._cookie_session is not None:
                    with Tag("form", method="post", action="/dashboard/logout"):
                        Tag("button", "Log out", type="submit")
            with Tag("nav", classes="side", id="navigation", aria_label="Pages"), Tag("ul"):
                for name, path in PAGES:
                    with Tag("li"):
                        Tag("a", name, href=address(*path), aria_current="page" if name == page else None)
            self.main = Tag("main", classes="main", id="main", tabindex="-1")
            with self.main:
                with Tag("div", classes="head"):
                    Tag("h1", title)
                    self.about = Tag("p", about, "about")
                self._banner = Tag("p", "", "banner", role="status")
