"""The demo from beginning to end: a site that lives, people who are told, and the proof that all of it is right."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import webbrowser
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from penstock.demo.ending import Ending
from penstock.demo.mailbox import Mailbox
from penstock.demo.show import Show
from penstock.demo.site import Site
from penstock.errors import DemoFailed

PORT = 8750
CATCH_UP_SECONDS = 60
LINE_SECONDS = 15
"""So often it says how far it is, where no table can be shown."""


@dataclass(frozen=True)
class Shown:
    """What the demo came to."""

    events: int
    mails: int
    url: str
    is_proven: bool
    """Whether `penstock verify` found every mode to agree."""


def run(folder: Path, console: Console, *, seconds: float, opens: bool = True) -> Shown:
    """Runs the demo in a new folder, for so many seconds (0: until Ctrl-C), and then proves what it has shown.

    Ctrl-C before the show begins, or while it is proven, is a KeyboardInterrupt. DemoFailed if a part of it ends by
    itself. Whatever happens, no process is left behind.
    """
    ending = Ending()
    ending.listen()
    show = Show(console)
    stop = threading.Event()
    shown = sys.stderr if console.stderr else sys.stdout
    with Mailbox(show.mailed) as mailbox, Site(folder, mailbox.url, shown=shown) as site:
        show.tell("the last hour of a web site comes in; Spark is starting")
        stream = site.stream(show.says)
        site.load_history()
        url = site.serve(PORT)
        ending.check()
        show.tell(f"the dashboard: {url}/dashboard", "bold cyan")
        if opens and _has_screen():
            webbrowser.open(f"{url}/dashboard")
        show.tell("visitors come in waves; soon the checkout breaks, a phone comes back, a scanner looks around")
        show.tell("Ctrl-C ends it" if not seconds else f"it ends after {seconds:g} s; Ctrl-C ends it sooner")
        producing = threading.Thread(target=site.produce, args=(stop,))
        producing.start()
        try:
            with show.live():
                _watch(show, site, stream, seconds, ending)
            ending.ask()
        finally:
            stop.set()
            producing.join()
        show.tell("the site is closed; what was recorded now runs in every mode, and all rows are compared")
        _catch_up(show, site, stream)
        site.end(stream)
        code = site.verify()
    return Shown(site.sent, len(show.mails), url, code == 0)


def _watch(show: Show, site: Site, stream: subprocess.Popen[str], seconds: float, ending: Ending) -> None:
    ends, line_at = time.monotonic() + seconds, time.monotonic() + LINE_SECONDS
    while not ending.is_asked and (not seconds or time.monotonic() < ends):
        time.sleep(0.25)
        show.events = site.sent
        if time.monotonic() >= line_at:
            line_at += LINE_SECONDS
            show.line()
        if stream.poll() is not None:
            raise DemoFailed("the stream", stream.returncode, site.said("run"))


def _catch_up(show: Show, site: Site, stream: subprocess.Popen[str]) -> None:
    """Until the views have all events."""
    deadline = time.monotonic() + CATCH_UP_SECONDS
    while site.lag() and time.monotonic() < deadline and stream.poll() is None:
        time.sleep(0.25)
    show.events = site.sent


def _has_screen() -> bool:
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
