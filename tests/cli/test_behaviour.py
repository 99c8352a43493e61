"""How every command behaves: exit codes, help with an example, errors without a traceback, quiet ends."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from penstock.cli.options import parse_size
from penstock.log.folder_log import FolderLog
from tests.cli.commands import fails, result, run
from tests.log.rows import rows

COMMANDS = [
    "", "topic", "topic create", "topic list", "topic show", "topic alter", "topic delete", "produce", "load",
    "consume", "log", "log check", "log inspect", "log seal", "log retain", "check", "plan", "run", "view", "view list",
    "view show", "view query", "view export", "view rebuild", "view drop", "view generations", "diff", "switch",
    "alert", "alert list", "alert show", "alert retry", "alert test", "rollback", "lag", "late", "explain-row", "serve",
    "token", "token add", "token list", "token remove",
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(command: str) -> None:
    text = run(*command.split(), "--help")
    assert "Usage: " in text
    if command not in ("topic", "log", "view"):
        assert "Example:\n" in text
        assert f"penstock {command}".strip() in text.partition("Example:")[2]


def test_version_is_printed() -> None:
    assert run("--version") == f"penstock {version('penstock')}\n"


@pytest.mark.parametrize("words", [["bogus"], ["topic", "create"], ["consume"], ["topic", "list", "--bogus"]])
def test_wrong_usage_is_exit_code_2(words: list[str]) -> None:
    assert fails(*words, code=2)


def test_log_can_be_named_before_and_after_the_command(tmp_path: Path) -> None:
    FolderLog(tmp_path / "there", background=False).create("events", "n int")
    for words in (
        ["--log", f"dir:{tmp_path}/there", "topic", "list"],
        ["topic", "list", "--log", str(tmp_path / "there")],
    ):
        assert "events" in run(*words)
    assert "cannot open 'kafka:there'" in fails("--log", "kafka:there", "topic", "list")


def test_log_is_found_by_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FolderLog(tmp_path / "there", background=False).create("events", "n int")
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    monkeypatch.setenv("PENSTOCK_LOG_URL", f"dir:{tmp_path}/there")
    assert "events" in run("topic", "list")
    monkeypatch.delenv("PENSTOCK_LOG_URL")
    (tmp_path / "penstock.toml").write_text('[log]\nurl = "dir:there"\n')
    assert "events" in run("topic", "list")
    (tmp_path / "penstock.toml").write_text('[log]\nur = "dir:there"\n')
    assert "did you mean 'log.url'" in fails("topic", "list")


def test_error_of_the_system_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert fails("--log", str(tmp_path / "file"), "topic", "create", "a", "--schema", "n int").startswith("penstock: ")


def test_bug_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(FolderLog, "topics", lambda *given, **named: 1 / 0)
    assert isinstance(result("--log", str(tmp_path), "topic", "list").exception, ZeroDivisionError)


def test_reader_that_has_enough_is_no_error(tmp_path: Path) -> None:
    with FolderLog(tmp_path, background=False) as log:
        log.create("events", "time timestamp, user string, n bigint").partitions[0].append(rows(range(50_000)))
    command = f"{sys.executable} -m penstock.cli --log {tmp_path} consume events --group g"
    found = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{command} | head -n 1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0
    assert "Traceback" not in found.stderr
    assert "Broken" not in found.stderr
    assert len(found.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("17", 17), ("10GB", 10**10), ("1.5 kb", 1500), ("2 MiB", 2 << 20), ("1TiB", 1 << 40)]
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert parse_size(text) == size
