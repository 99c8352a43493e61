"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from penstock.log.folder_log import FolderLog
    from penstock.log.log import Log
    from penstock.settings import Settings
    from penstock.views.store import Store

LOG_HELP = (
    "Where the log is: dir:PATH or a plain path. Without it: PENSTOCK_LOG_URL, then penstock.toml, then ./data/log."
)

LogUrl = Annotated[str | None, typer.Option("--log", metavar="URL", help=LOG_HELP, hidden=True)]
"""Accepted after a command too: nobody remembers which options go before it."""

ViewsUrl = Annotated[
    str | None,
    typer.Option(
        "--views",
        metavar="URL",
        help="Where views are: sqlite:PATH or postgresql://... Without it: PENSTOCK_VIEWS_URL, then penstock.toml, "
        "then ./data/views.db.",
    ),
]

AppFile = Annotated[str, typer.Argument(metavar="APP", help="The file of the pipeline: app.py, or app.py:name.")]

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs, not tables for people.")]

_UNITS = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", start=1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", start=1)},
}


def settings_of(
    context: typer.Context,
    log_url: str | None = None,
    views_url: str | None = None,
    others: Mapping[str, object] | None = None,
) -> Settings:
    """What the flags, the environment and penstock.toml say, in that order."""
    from penstock.errors import CommandRefused
    from penstock.redacted import redacted_url
    from penstock.settings import load_settings, variable_of

    given = log_url or context.find_root().obj
    if given is not None and ":" not in given:
        given = f"dir:{given}"
    if views_url is not None and ":" not in views_url:
        views_url = f"sqlite:{views_url}"
    for flag, url, instead in (("--log", given, "log.password"), ("--views", views_url, "views.password")):
        if url is not None and redacted_url(url) != url:
            raise CommandRefused(
                f"the address in {flag} has a password in it: {redacted_url(url)}",
                "every user of this machine can read the command line of a process",
                f"leave it out, and set {variable_of(instead)}, or {instead}_file in penstock.toml",
            )
    return load_settings({"log.url": given, "views.url": views_url, **(others or {})})


def open_log(context: typer.Context, url: str | None, *, background: bool = False) -> Log:
    """The log that the flags, the environment and penstock.toml name."""
    from penstock.log import log

    return log.open_log(settings_of(context, url).log, background=background)


def open_folder(context: typer.Context, url: str | None) -> FolderLog:
    """The same, where only files will do. NotAFolder if the log is kept elsewhere."""
    from penstock.errors import NotAFolder
    from penstock.log.folder_log import FolderLog

    found = open_log(context, url)
    if not isinstance(found, FolderLog):
        found.close()
        raise NotAFolder(found.url, context.command_path)
    return found


@contextmanager
def open_views(settings: Settings) -> Iterator[Store | None]:
    """The database of views; None where no run has made it yet: looking at views makes no file."""
    from penstock.views.store import open_store

    scheme, _, path = settings.views.url.partition(":")
    if scheme == "sqlite" and not Path(path).exists():
        yield None
        return
    with open_store(settings.views.url, password=settings.views.password) as store:
        yield store


def is_terminal() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty()


def parse_size(text: str) -> int:
    """A number of bytes as people write it: 10GB is 10 * 1000**3, 128MiB is 128 * 1024**2.

    >>> parse_size("1.5 kB"), parse_size("128MiB")
    (1500, 134217728)
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*", text)
    if match is None or match[2].lower() not in _UNITS:
        raise typer.BadParameter(f"{text!r} is not a size; expected a number and a unit, such as 500MB, 10GB or 128MiB")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def parse_place(text: str) -> tuple[str, int | None]:
    """`orders/3` is partition 3 of topic orders, `orders` all of it."""
    topic, slash, number = text.partition("/")
    if slash and not (number.isascii() and number.isdigit()):
        raise typer.BadParameter(f"{text!r} is no partition; expected TOPIC/NUMBER, such as orders/3")
    return topic, int(number) if slash else None


def names(text: str | None) -> list[str] | None:
    """`a, b` is a and b; nothing at all is None."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def fail_as_nothing_fits(topic: str) -> NoReturn:
    """Ends a command that stored nothing: a script must not take that for success."""
    typer.echo(f"penstock: none of these events fits {topic}\n  to see why: penstock consume {topic}.dead", err=True)
    raise typer.Exit(1)
