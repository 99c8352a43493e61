"""penstock serve: views and topics over HTTP, and the tokens that open it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from penstock.cli.options import Json, LogUrl, ViewsUrl, names, settings_of
from penstock.cli.output import print_json, print_table

if TYPE_CHECKING:
    from penstock.service.tokens import Right, Tokens

commands = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
tokens = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
commands.add_typer(tokens, name="token")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Who has it: a person or a program.")]


@commands.callback()
def serve(
    context: typer.Context,
    host: Annotated[str | None, typer.Option(help="Where to listen; anything but this machine needs tokens.")] = None,
    port: Annotated[int | None, typer.Option(help="On which port; 0 is any that is free.")] = None,
    views_url: ViewsUrl = None,
    log_url: LogUrl = None,
) -> None:
    """Serve views and topics over HTTP, until Ctrl-C. Open to this machine alone, unless there are tokens.

    \b
    Example:
      penstock serve
      penstock serve token add dashboard --rights read
      penstock serve --host 0.0.0.0
    """
    if context.invoked_subcommand is not None:
        return
    _installed()
    from penstock.service.server import serve as run_service

    settings = settings_of(context, log_url, views_url, {"serve.host": host, "serve.port": port})
    run_service(settings, lambda url: print(f"serving on {url}, described at {url}/docs; Ctrl-C ends it", flush=True))


@tokens.callback()
def token() -> None:
    """Make, list and remove the tokens that open the service. Only hashes are kept.

    \b
    Example:
      penstock serve token add shop --rights write
    """


@tokens.command()
def add(
    context: typer.Context,
    name: Name,
    rights: Annotated[
        str, typer.Option(help="read, write, admin: with commas. admin is all, and the metrics.")
    ] = "read",
) -> None:
    """Make a token and print it, once: it is kept nowhere.

    \b
    Example:
      penstock serve token add shop --rights read,write
    """
    from penstock.service.tokens import RIGHTS

    wanted = names(rights) or []
    unknown = [each for each in wanted if each not in RIGHTS]
    if unknown or not wanted:
        raise typer.BadParameter(f"{rights!r}; expected one or more of {', '.join(RIGHTS)}, with commas between them")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise typer.BadParameter(f"{name!r} cannot name a token; expected letters, digits, '.', '_' and '-'")
    print(_tokens(context).add(name, cast("list[Right]", wanted)))


@tokens.command("list")
def list_tokens(context: typer.Context, as_json: Json = False) -> None:
    """List the tokens: names and rights.

    \b
    Example:
      penstock serve token list
    """
    found: list[dict[str, Any]] = [{"name": each.name, "rights": list(each.rights)} for each in _tokens(context).all()]
    if as_json:
        print_json(found)
    else:
        print_table(["token", "rights"], [(each["name"], ", ".join(each["rights"])) for each in found])


@tokens.command()
def remove(context: typer.Context, name: Name) -> None:
    """Take a token away. A service that is running shuts it out at once.

    \b
    Example:
      penstock serve token remove shop
    """
    _tokens(context).remove(name)
    print(f"token {name!r} is removed")


def _tokens(context: typer.Context) -> Tokens:
    from penstock.service.tokens import Tokens

    return Tokens(settings_of(context).serve.tokens_path)


def _installed() -> None:
    """One sentence where the libraries of the service are not there."""
    from importlib.util import find_spec

    from penstock.errors import CommandRefused

    missing = [each for each in ("fastapi", "uvicorn", "websockets", "prometheus_client") if find_spec(each) is None]
    if missing:
        raise CommandRefused(
            "nothing is served",
            f"not installed: {', '.join(missing)}",
            "to install them: pip install 'penstock[serve]'",
        )
