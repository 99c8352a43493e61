"""penstock jars: what Spark needs beside itself to run record at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import Json
from penstock.cli.output import print_json


def jars(
    to: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where they go; by default where runs look: ~/.cache/penstock/jars."),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="URL",
            help="A mirror of Maven Central. Without it: PENSTOCK_MAVEN_URL, then Maven Central.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Fetch the jars of Spark's Kafka connector, for `penstock run --trigger realtime`. What is there is kept.

    \b
    Example:
      penstock jars
      penstock jars --to ./jars
    """
    from penstock.spark.jars import Jar, fetch, jars_folder

    folder = (jars_folder() if to is None else to).absolute()
    fetched: dict[str, bool] = {}

    def told(jar: Jar, is_new: bool) -> None:
        fetched[jar.name] = is_new
        if not as_json:
            print(f"{'fetched' if is_new else 'there'}: {jar.name}", flush=True)

    places = fetch(folder, url, told)
    named = ",".join(map(str, places))
    if as_json:
        print_json({"folder": str(folder), "jars": fetched, "spark.jars": named})
        return
    if folder == jars_folder().absolute():
        print(f"in {folder}: penstock run --trigger realtime finds them there")
    else:
        print(f'in {folder}; for runs to find them, in penstock.toml:\n[spark.conf]\n"spark.jars" = "{named}"')
