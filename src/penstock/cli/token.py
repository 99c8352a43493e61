"""penstock token: make, list and remove the tokens that open the service."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from penstock.cli.options import Json, names, settings_of
from penstock.cli.output import print_json, print_table

if TYPE_CHECKING:
    from penstock.service.tokens import Right, Tokens

commands = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Who has it: a person or a program.")]


@commands.callback()
def token() -> None:
    """Make, list and remove the tokens that open the service. Only hashes are kept.

    \b
    Example:
      penstock token add shop --rights write
    """


@commands.command()
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
      penstock token add shop --rights read,write
    """
    from penstock.service.tokens import RIGHTS

    wanted = names(rights) or []
    unknown = [each for each in wanted if each not in RIGHTS]
    if unknown or not wanted:
        raise typer.BadParameter(f"{rights!r}; expected one or more of {', '.join(RIGHTS)}, with commas between them")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise typer.BadParameter(f"{name!r} cannot name a token; expected letters, digits, '.', '_' and '-'")
    print(_tokens(context).add(name, cast("list[Right]", wanted)))


@commands.command("list")
def list_tokens(context: typer.Context, as_json: Json = False) -> None:
    """List the tokens: names and rights.

    \b
    Example:
      penstock token list
    """
    found: list[dict[str, Any]] = [{"name": each.name, "rights": list(each.rights)} for each in _tokens(context).all()]
    if as_json:
        print_json(found)
    else:
        print_table(["token", "rights"], [(each["name"], ", ".join(each["rights"])) for each in found])


@commands.command()
def remove(context: typer.Context, name: Name) -> None:
    """Take a token away. A service that is running shuts it out at once.

    \b
    Example:
      penstock token remove shop
    """
    _tokens(context).remove(name)
    print(f"token {name!r} is removed")


def _tokens(context: typer.Context) -> Tokens:
    from penstock.service.tokens import Tokens

    return Tokens(settings_of(context).serve.tokens_path)
