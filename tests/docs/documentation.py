"""Code blocks of the documentation, as things that can be run.

In a page, blocks fenced as python, bash or console run in order in one temporary folder. Python blocks of a page share
their names; a bash block is one script; in a console block each line after `$ ` is run, and what follows is its output.
A text block directly after a code block is the output expected of it, with `...` for anything, as in doctest.

A comment directly before a block changes what is done with it:

    <!-- not run: needs a broker -->     the block is left out, for that reason
    <!-- file: shop.py -->               the block is not run but saved under that name, whatever its language

and one at the very top of the page, `<!-- marks: services, long -->`, says what its test needs.
Python blocks run inside the test process and share its Spark session, so a page never stops the session.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import signal
import subprocess
import sys
import textwrap
import traceback
from dataclasses import dataclass, replace
from pathlib import Path

RUN = ("python", "bash", "console")
MISSPELT = {
    "py": "python",
    "python3": "python",
    "pycon": "python",
    "sh": "bash",
    "shell": "bash",
    "shell-session": "console",
}
NEEDS_SPARK = re.compile(r"penstock\.spark|pyspark|\.read(_stream)?\(spark")


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    """The line of its first line of code, counted from 1."""
    language: str
    code: str
    expected: str | None
    """The output that must come, or None where the page shows none."""
    file: str | None
    """The name under which it is saved instead of being run."""


class BlockFailed(AssertionError):
    """A block did not do what the page says."""

    def __init__(self, block: Block, reason: str) -> None:
        super().__init__(f"{block.page.name}:{block.line}: {reason}")


def blocks_of(page: Path) -> list[Block]:
    """What there is to do in a page, in order: blocks to run and blocks to save."""
    found: list[Block] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    before = ""  # the last line that is not blank, so that a comment or block "directly before" is known
    number = 0
    while number < len(lines):
        fence = re.fullmatch(r"(\s*)(```+)\s*([\w+-]*).*", lines[number])
        if fence is None:
            before = lines[number] if lines[number].strip() else before
            number += 1
            continue
        end = next(at for at in range(number + 1, len(lines)) if lines[at].strip() == fence[2])
        code = textwrap.dedent("\n".join(lines[number + 1 : end]))
        block = Block(page, number + 2, fence[3], code, None, _comment(before, "file"))
        if block.language in MISSPELT:
            raise BlockFailed(
                block, f"fenced as {block.language}; write {MISSPELT[block.language]}, else it is not run"
            )
        if block.language == "text" and before == "a block that runs":
            found[-1] = replace(found[-1], expected=code)
            before = ""
        elif block.file is not None:
            found.append(block)
            before = ""
        elif block.language in RUN and _comment(before, "not run") is None:
            found.append(block)
            before = "a block that runs"
        else:
            before = ""
        number = end + 1
    return found


def marks_of(page: Path, blocks: list[Block]) -> list[str]:
    """The marks of the page's test: those its first line names, and spark where a block plainly needs it."""
    first = page.read_text(encoding="utf-8").partition("\n")[0]
    marks = {mark.strip() for mark in (_comment(first, "marks") or "").split(",") if mark.strip()}
    if any(block.language in RUN and NEEDS_SPARK.search(block.code) for block in blocks):
        marks.add("spark")
    return sorted(marks)


def run_page(blocks: list[Block], folder: Path) -> None:
    """Runs the blocks of one page in `folder`, the current one; BlockFailed at the first that fails."""
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks:
        if block.file is not None:
            (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.file).write_text(block.code + "\n")
        elif block.language == "console":
            for command, expected in _commands(block.code):
                _compare(block, expected, _run_bash(block, command, folder))
        else:
            output = _run_python(block, names) if block.language == "python" else _run_bash(block, block.code, folder)
            if block.expected is not None:
                _compare(block, block.expected, output)


def _comment(line: str, word: str) -> str | None:
    match = re.fullmatch(rf"\s*<!--\s*{word}:\s*(.+?)\s*-->\s*", line)
    return match[1] if match else None


def _commands(code: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output shown under it."""
    found: list[tuple[str, str]] = []
    for line in code.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif line.startswith("> ") and not found[-1][1]:
            found[-1] = (f"{found[-1][0]}\n{line[2:]}", "")
        else:
            found[-1] = (found[-1][0], f"{found[-1][1]}{line}\n")
    return found


def _run_python(block: Block, names: dict[str, object]) -> str:
    output = io.StringIO()
    try:
        # The empty lines put errors at the page's own line numbers.
        code = compile("\n" * (block.line - 1) + block.code, str(block.page), "exec")
        with contextlib.redirect_stdout(output):
            exec(code, names)
    except (Exception, SystemExit) as error:
        raise BlockFailed(block, f"{traceback.format_exc()}\n{output.getvalue()}") from error
    return output.getvalue()


def _run_bash(block: Block, script: str, folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    environment |= {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "100"}
    # A file, not a pipe: a command left in the background would keep a pipe open.
    with (folder.parent / f"{folder.name}.output").open("w+") as output:
        shell = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            status = shell.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
        output.seek(0)
        printed = output.read()
    if status != 0:
        raise BlockFailed(block, f"ended with exit code {status}\n{script}\n{printed}")
    return printed


def _compare(block: Block, expected: str, output: str) -> None:
    want, got = (
        "\n".join(line.rstrip() for line in text.strip("\n").splitlines()) + "\n" for text in (expected, output)
    )
    if not doctest.OutputChecker().check_output(want, got, doctest.ELLIPSIS):
        raise BlockFailed(block, f"the output is not what the page shows\nexpected:\n{want}\nfound:\n{got}")
