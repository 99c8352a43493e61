"""How every command behaves: errors of ours as plain messages, a quiet end on Ctrl-C and on a closed pipe."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from penstock.errors import PenstockError
from penstock.printable import printable_output


class Commands(TyperGroup):
    """The group of all commands. A traceback means a bug of ours; everything else is told in words."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command. What it raises becomes a message and an exit code, and no event steers the terminal."""
        with printable_output():
            return self._invoke(ctx)

    def _invoke(self, ctx: Any) -> Any:
        logging.basicConfig(format="%(message)s", level=logging.WARNING, stream=sys.stderr)
        try:
            answer = super().invoke(ctx)
            sys.stdout.flush()
        except PenstockError as error:
            typer.echo(str(error), err=True)
            raise typer.Exit(1) from error
        except BrokenPipeError as error:
            _discard_output()  # Whoever read us, as `head`, has enough: that is no error.
            raise typer.Exit(0) from error
        except KeyboardInterrupt as error:
            raise typer.Exit(130) from error
        except OSError as error:
            what = f"{error.filename}: {error.strerror}" if error.filename else error
            typer.echo(f"penstock: {what}", err=True)
            raise typer.Exit(1) from error
        return answer


def _discard_output() -> None:
    """Python flushes once more at its end, which would complain again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
