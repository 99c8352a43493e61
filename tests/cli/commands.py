"""Commands as a user would type them, run in this process."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from penstock.cli import app


def result(*words: str, given: str | bytes = "") -> Result:
    """Runs a command with this standard input."""
    return CliRunner().invoke(app, list(words), input=given)


def run(*words: str, given: str | bytes = "", code: int = 0) -> str:
    """What the command prints on its standard output. It must end with this exit code."""
    found = result(*words, given=given)
    assert found.exit_code == code, (words, found.exit_code, found.output, found.exception)
    return found.stdout


def fails(*words: str, given: str | bytes = "", code: int = 1) -> str:
    """What the command prints on its standard error, where it must fail, in words and not with a traceback."""
    found = result(*words, given=given)
    assert found.exit_code == code, (words, found.exit_code, found.output, found.exception)
    assert "Traceback" not in found.output
    return found.stderr
