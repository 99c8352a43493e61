"""What a run shows: numbers per view, on a terminal, as lines and as JSON lines."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from penstock.cli.bar import BatchLines
from penstock.cli.live import JsonLines, Lines, Screen, line_of, views_table
from penstock.log.folder_log import FolderLog
from penstock.views.catalog import Counters
from penstock.views.fence import Fence
from tests.log.rows import rows

if TYPE_CHECKING:
    from penstock.modes.running import StepReport


@pytest.fixture
def running(tmp_path: Path) -> Any:
    """A set of two views, one over the other, which has read 6 of 10 records."""
    log = FolderLog(tmp_path, background=False)
    topic = log.create("events", "time timestamp, user string, n bigint")
    topic.partitions[0].append(rows(range(10)))
    fence = Fence({"events": {0: 6}}, 1_000_000)
    kept = SimpleNamespace(how="fold")
    return SimpleNamespace(
        name="hits",
        fence=fence,
        topics={"events": topic},
        views=[
            SimpleNamespace(name="hits", keeping=kept, topics=("events",), upstream=()),
            SimpleNamespace(name="total", keeping=kept, topics=(), upstream=("hits",)),
        ],
        generation=SimpleNamespace(counters={"hits": Counters(4, 2, 1), "total": Counters(1)}),
    )


def report(running: Any, count: int) -> StepReport:
    from penstock.modes.running import StepReport

    names = [view.name for view in running.views]
    zeros = dict.fromkeys(names, 0)
    return StepReport("hits", count, 0.25, zeros, zeros, zeros, 0, running.fence)


def stepped(display: Any, running: Any) -> Any:
    """The display after a stream began at record 6 and read one more."""
    display.opened([running])
    running.fence = Fence({"events": {0: 7}}, 2_000_000)
    display.stepped(report(running, 1), running, 3)
    return display


def test_view_over_a_view_is_as_far_behind_as_what_it_reads(running: Any) -> None:
    watch = stepped(JsonLines(), running).watch
    hits, total = watch.now()
    assert (hits.behind, total.behind) == (3, 3)
    assert hits.seconds_behind == total.seconds_behind
    assert (hits.rows, hits.late, hits.corrected, hits.step_seconds) == (4, 2, 1, 0.25)
    assert watch.records == 1


def test_terminal_shows_a_row_for_each_view(running: Any) -> None:
    watch = stepped(JsonLines(), running).watch
    console = Console(file=io.StringIO(), width=120)
    console.print(views_table("web", watch))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "web   1 record in 1 step" in text
    assert "seconds behind" in text
    assert "250 ms" in text
    assert "total" in text


def test_lines_come_every_few_seconds_and_at_the_end(running: Any, capsys: pytest.CaptureFixture[str]) -> None:
    display = stepped(Lines(seconds=3600), running)
    assert capsys.readouterr().out == ""
    display.close()
    first, second = capsys.readouterr().out.splitlines()
    assert "hits (fold): 4 rows, " in first
    assert "3 behind" in first
    assert "total (fold): 1 row, " in second
    display.close()
    assert capsys.readouterr().out == ""


def test_json_has_one_object_per_step(running: Any, capsys: pytest.CaptureFixture[str]) -> None:
    stepped(JsonLines(), running)
    [line] = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert (found["event"], found["records"], found["left"]) == ("step", 1, 3)
    assert found["fence"] == {"events": {"0": 7}}
    assert found["views"]["total"]["behind"] == 3


def test_lag_that_cannot_be_read_is_a_dash(running: Any) -> None:
    running.topics["events"].log.delete("events")
    [hits, _] = stepped_watch(running).now()
    assert "- behind (-)" in line_of(hits)


def stepped_watch(running: Any) -> Any:
    display = JsonLines()
    display.watch._sets = [running]
    display.watch._steps = {"hits": []}  # type: ignore[dict-item]
    return display.watch


def test_batch_tells_how_much_is_left(running: Any, capsys: pytest.CaptureFixture[str]) -> None:
    now = [100.0]
    display = BatchLines(clock=lambda: now[0])
    display.begun(["hits", "total"], 10)
    now[0] += 4.9
    display.progressed(running, 4)
    now[0] += 1.1
    display.progressed(running, 4)
    display.progressed(running, 0)
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("hits, total: 6 of 10 records, ")
    assert first.endswith(", about 4 s left")
    assert last.startswith("hits, total: 10 of 10 records, ")


def test_screen_is_a_table_with_what_was_said_under_it(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    screen = Screen("web")
    screen._live.console = Console(file=io.StringIO(), width=120, force_terminal=True)
    stepped(screen, running)
    screen.say("the database is away")
    screen.close()
    text = screen._live.console.file.getvalue()  # type: ignore[attr-defined]
    assert "web   1 record in 1 step" in text
    assert text.rstrip().endswith("the database is away\n\x1b[?25h")
