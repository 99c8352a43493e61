"""penstock demo: all of it at work, on a web site that is made up."""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from penstock.access import make_folders
from penstock.cli.installed import DEMO, check_installed
from penstock.cli.options import Json
from penstock.cli.output import print_json_line


def demo(
    seconds: Annotated[
        float, typer.Option(min=0, help="How long the site lives before all is proven; 0 is until Ctrl-C.")
    ] = 120.0,
    folder: Annotated[
        Path | None, typer.Option("--keep", metavar="DIR", help="Keep log, views and application file in this folder.")
    ] = None,
    opens: Annotated[bool, typer.Option("--open/--no-open", help="Open the dashboard if there is a screen.")] = True,
    as_json: Json = False,
) -> None:
    """Show all of it at work: a web site's log comes in, a stream keeps views, a dashboard shows them, and mails tell
    what is wrong. At the end `penstock verify` proves that every mode gives the same rows.

    \b
    Example:
      penstock demo
      penstock demo --seconds 60 --keep ./weblogs-demo
    """
    check_installed(DEMO, "demo", "there is no demo")
    from penstock.cli.terminal import Terminal
    from penstock.demo.demo import run

    console = Terminal(stderr=as_json)
    with ExitStack() as stack:
        if folder is None:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-demo-")))
        else:
            place = folder.absolute()
            if place.exists() and any(place.iterdir()):
                raise typer.BadParameter(f"{folder} is there already and not empty: name a new folder")
            make_folders(place)
        shown = run(place, console, seconds=seconds, opens=opens)
    if as_json:
        print_json_line(asdict(shown))
    if folder is not None:
        console.print(f"to look around: cd {folder} && penstock serve weblogs.py")
    sys.exit(0 if shown.is_proven else 1)
