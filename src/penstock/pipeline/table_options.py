"""What a table may be defined with: a location and its options, or a topic of changes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from penstock.errors import SchemaError, did_you_mean
from penstock.events.schema import parse_ddl
from penstock.pipeline.options import Asked
from penstock.redacted import redacted_url

FORMATS = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
"""The format of a file by its suffix; `.csv.gz` and other compressed texts count as what they hold."""
PACKED = (".gz", ".bz2", ".zst", ".zstd", ".lz4", ".snappy", ".deflate")
DATABASES = ("sqlite", "postgresql", "postgres", "mysql", "mariadb", "oracle", "mssql", "duckdb")
OPTIONS: dict[str, tuple[str, ...]] = {
    "csv": ("format", "schema", "header", "delimiter"),
    "json": ("format", "schema"),
    "parquet": ("format",),
    "folder": ("format", "schema", "header", "delimiter"),
    "database": ("table", "query", "schema"),
    "topic": (),
}
_SCHEME = re.compile(r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]+):")


def check_table(
    asked: Asked, location: object, topic: object, key: tuple[str, ...], options: Mapping[str, Any]
) -> str | None:
    """The location as text, or None for a topic of changes. DefinitionError if anything does not fit."""
    if (location is None) == (topic is None):
        found = f"location={redacted_url(str(location))!r}, topic={topic!r}" if location is not None else None
        asked.refuse("location", "either a location (a path or a database url) or topic=, and not both", found)
    if topic is not None:
        if not isinstance(topic, str):
            asked.refuse("topic", "the name of a topic of this pipeline", topic)
        if not key:
            asked.refuse("key", "the columns that tell one row of the table from another", None, 'give key="..."')
        _check_options(asked, "topic", options)
        return None
    if not isinstance(location, str | os.PathLike) or not os.fspath(location):
        asked.refuse("location", "a path or a database url", location)
    text = str(os.fspath(location))
    kind = kind_of(text, options.get("format"))
    if kind is None:
        expected = "a path ending in .csv, .json, .jsonl or .parquet, a folder, or a database url"
        asked.refuse("location", expected, redacted_url(text), 'for another suffix say which it is: format="csv"')
    _check_options(asked, kind, options)
    return text


def kind_of(location: str, given: object = None) -> str | None:
    """What stands at a location: "csv", "json", "parquet", "folder" (found out when it is read) or "database".

    >>> kind_of("countries.csv.gz"), kind_of("data/countries"), kind_of("postgresql://crm/shop"), kind_of("a.xlsx")
    ('csv', 'folder', 'database', None)
    """
    scheme = _SCHEME.match(location)
    if scheme is not None:
        return "database" if scheme["scheme"].lower().partition("+")[0] in DATABASES else None
    if given is not None:
        return str(given) if given in OPTIONS else "folder"
    name = location.lower()
    for packed in PACKED:
        name = name.removesuffix(packed)
    suffix = os.path.splitext(name.rstrip("/"))[1]
    return FORMATS.get(suffix, "folder" if not suffix or location.endswith("/") else None)


def _check_options(asked: Asked, kind: str, options: Mapping[str, Any]) -> None:
    known = OPTIONS[kind]
    for name, value in options.items():
        if name not in known:
            expected = f"options of a {kind} table: {', '.join(known)}" if known else "no options: the topic has them"
            asked.refuse(name, expected, value, did_you_mean(name, known).strip())
        if name == "header":
            if not isinstance(value, bool):
                asked.refuse(name, "True or False", value)
        elif not isinstance(value, str) or not value:
            asked.refuse(name, "a text", value)
    if "format" in options:
        asked.choice("format", options["format"], ("csv", "json", "parquet"))
    if "table" in options and "query" in options:
        asked.refuse("query", "either table= or query=, and not both", options["query"])
    if "schema" in options:
        try:
            parse_ddl(options["schema"])
        except SchemaError as error:
            asked.refuse("schema", error.expected, options["schema"], f"found {error.found}")
