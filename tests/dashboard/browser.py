"""A real browser: Debian's chromium, driven by Playwright. Tests that need it are skipped where it is not there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

from tests.eventually import LIMIT_SECONDS, eventually

CHROMIUM = shutil.which("chromium")
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}


@contextmanager
def browser() -> Iterator[Browser]:
    """The browser, for as long as it is needed."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed (make service-tools, or apt install chromium)")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield started
        finally:
            started.close()


@dataclass
class Watched:
    """A page, and what it complained of and asked for meanwhile."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    def note(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def asked(self, request: Request) -> None:
        if not request.url.startswith("data:"):
            self.hosts.add(urlsplit(request.url).netloc)


@contextmanager
def opened(browser: Browser, **options: Any) -> Iterator[Watched]:
    """A page in a context of its own, with its console and its requests under watch."""
    context = browser.new_context(**{"viewport": WIDE, **options})
    context.set_default_timeout(LIMIT_SECONDS * 1000)
    page = context.new_page()
    watched = Watched(page)
    page.on("console", watched.note)
    page.on("pageerror", lambda error: watched.complaints.append(str(error)))
    page.on("request", watched.asked)
    page.on("websocket", lambda socket: watched.hosts.add(urlsplit(socket.url).netloc))
    try:
        yield watched
    finally:
        context.close()


def settled(page: Page, address: str) -> None:
    """Goes there, and waits until the page is drawn and connected."""
    page.goto(address)
    page.wait_for_selector("main h1")
    eventually(lambda: page.evaluate("() => window.did_handshake === true"), explain=lambda: page.inner_text("body"))
