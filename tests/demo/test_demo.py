"""The demo as people see it: a real browser watches a real run, mails come, and the proof at the end holds."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.demo import demo
from penstock.demo.ending import Ending
from penstock.errors import DemoFailed
from tests.dashboard.browser import Watched, browser, opened, settled, until

PAGES = ("", "/pipeline", "/topics", "/topics/access", "/topics/alarms", "/views", "/views/traffic", "/views/pages",
         "/clocks", "/runs", "/alerts", "/alerts/weblogs/page_fails/1")  # fmt: skip
FILL_SECONDS = 90
"""So long a loaded machine may take until the last episode is in the views; a quiet one takes half of it."""


def started(folder: Path, *options: str) -> subprocess.Popen[str]:
    """A demo that runs until it is told to end."""
    command = [sys.executable, "-m", "penstock.demo", "--no-open", "--json", "--keep", str(folder), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def address(process: subprocess.Popen[str]) -> str:
    """Where its dashboard is, as it says itself."""
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"http://\S+/dashboard", line):
            return found[0]
    raise AssertionError(f"the demo named no dashboard, and ended with {process.wait()}")


def processes_of(folder: Path) -> list[str]:
    """What still runs with this folder in its command."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = place.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in command:
            found.append(command)
    return found


def number(watched: Watched, tile: str) -> float:
    """The number on a tile of the overview."""
    text = watched.page.inner_text(f"dl.tiles .tile:has(dt:text-is('{tile}')) dd:not(.unit)")
    return float(re.sub(r"[^\d.]", "", text) or 0)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_demo_moves_corrects_tells_and_proves(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    process = started(folder, "--seconds", "0")
    try:
        url = address(process)
        with browser() as chromium, opened(chromium) as overview, opened(chromium) as traffic, opened(chromium) as rows:
            settled(overview.page, url)
            until(lambda: number(overview, "Views") == 4 and number(overview, "Events") > 0, overview.page, 90)
            settled(traffic.page, f"{url}/views/traffic")
            until(lambda: traffic.page.locator("svg .mark").count() > 0, traffic.page, FILL_SECONDS)
            until(lambda: number(overview, "Corrected") > 0, overview.page, 30)  # A phone came back.
            settled(rows.page, f"{url}/views/busiest")
            until(lambda: "<script>alert('hello')</script>" in rows.page.inner_text("main"), rows.page, FILL_SECONDS)
            assert rows.page.locator("main script").count() == 0
            settled(rows.page, f"{url}/alerts")
            until(lambda: rows.page.get_by_text("sent", exact=True).count() >= 3, rows.page, FILL_SECONDS)
            for path in PAGES:
                settled(rows.page, f"{url}{path}")
                rows.page.wait_for_timeout(1500)
            for watched in (overview, traffic, rows):
                assert watched.complaints == []
                assert watched.hosts == {url.removeprefix("http://").removesuffix("/dashboard")}
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=400)
    assert process.returncode == 0, err
    shown = json.loads(out)
    assert shown["is_proven"]
    assert shown["mails"] >= 2
    assert "mail to security@example.com" in err
    assert processes_of(folder) == []


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_demo_that_is_ended_while_it_starts_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "site"
    process = started(folder)
    assert process.stderr is not None
    assert "Spark is starting" in process.stderr.readline()
    process.send_signal(number)
    process.communicate(timeout=100)
    assert process.returncode == 128 + signal.SIGINT
    assert processes_of(folder) == []


def test_the_first_signal_asks_and_the_second_ends() -> None:
    before = {number: signal.getsignal(number) for number in Ending.NUMBERS}
    ending = Ending()
    try:
        ending.listen()
        ending.check()
        os.kill(os.getpid(), signal.SIGHUP)
        assert ending.is_asked
        with pytest.raises(KeyboardInterrupt):
            ending.check()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_port_that_is_taken_is_not_asked_for() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert demo._free_port(taken.getsockname()[1]) == 0
    assert demo._free_port(0) == 0


def test_a_part_that_ends_by_itself_is_named_with_what_it_said() -> None:
    error = DemoFailed("the stream", 1, "penstock: pipeline 'weblogs' is owned\n  by another run")
    assert "the stream ended by itself, with exit code 1" in str(error)
    assert "| penstock: pipeline 'weblogs' is owned" in str(error)
