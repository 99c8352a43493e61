"""The demo as people see it: a real browser watches a real run, mails come, and the proof at the end holds."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dashboard.browser import Watched, browser, opened, settled
from tests.eventually import eventually

pytestmark = pytest.mark.long

PAGES = ("", "/pipeline", "/topics", "/topics/access", "/topics/alarms", "/views", "/views/traffic", "/views/pages",
         "/clocks", "/runs", "/alerts", "/alerts/weblogs/page_fails/1")  # fmt: skip
FILL_SECONDS = 600
"""More than a busy machine takes until the last episode is in the views; a quiet one takes about a minute."""


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


def test_the_demo_moves_corrects_tells_and_proves(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    process = started(folder, "--seconds", "0")
    try:
        url = address(process)
        with browser() as chromium, opened(chromium) as overview, opened(chromium) as traffic, opened(chromium) as rows:
            settled(overview.page, url)
            eventually(
                lambda: number(overview, "Views") == 4 and number(overview, "Events") > 0,
                seconds=FILL_SECONDS,
            )
            settled(traffic.page, f"{url}/views/traffic")
            eventually(lambda: traffic.page.locator("svg .mark").count() > 0, seconds=FILL_SECONDS)
            eventually(lambda: number(overview, "Corrected") > 0, seconds=FILL_SECONDS)  # A phone came back.
            settled(rows.page, f"{url}/views/busiest")
            eventually(
                lambda: "<script>alert('hello')</script>" in rows.page.inner_text("main"),
                seconds=FILL_SECONDS,
            )
            assert rows.page.locator("main script").count() == 0
            settled(rows.page, f"{url}/alerts")
            eventually(lambda: rows.page.get_by_text("sent", exact=True).count() >= 3, seconds=FILL_SECONDS)
            for path in PAGES:
                settled(rows.page, f"{url}{path}")
                rows.page.wait_for_timeout(1500)
            for watched in (overview, traffic, rows):
                assert watched.complaints == []
                assert watched.hosts == {url.removeprefix("http://").removesuffix("/dashboard")}
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert process.returncode == 0, err
    shown = json.loads(out)
    assert shown["is_proven"]
    assert shown["mails"] >= 2
    assert "mail to security@example.com" in err
    assert processes_of(folder) == []


def test_a_demo_that_is_ended_while_it_starts_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    process = started(folder)
    assert process.stderr is not None
    assert "Spark is starting" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 128 + signal.SIGINT
    assert processes_of(folder) == []
