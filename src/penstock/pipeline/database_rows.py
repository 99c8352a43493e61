"""The rows of a table in somebody's database, as Arrow: through SQLAlchemy, with the types that it declares."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import TableUnreadable, did_you_mean
from penstock.events.ddl import TIMESTAMP, TIMESTAMP_NTZ, ArrowArray, ArrowType
from penstock.events.schema import parse_ddl
from penstock.loopback import warn_of_plain_database
from penstock.pipeline.definition import TableSpec
from penstock.redacted import database_url, redacted_url

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.types import TypeEngine


def read_database(spec: TableSpec) -> pa.Table:
    """All rows of the table or query that the spec names; by default the table of the spec's own name.

    The url is SQLAlchemy's; `sqlite:PATH` and `postgresql://` without a driver are understood too. Types are those
    that the database declares for a table, and those of the values for a query; `schema` overrides both.
    """
    from sqlalchemy import create_engine
    from sqlalchemy.exc import SQLAlchemyError

    try:
        engine = create_engine(database_url(_url(spec)))
        try:
            with engine.connect() as connection:
                if engine.driver == "psycopg":
                    driver: Any = connection.connection.driver_connection
                    warn_of_plain_database("pipeline", safe_url(spec), driver)
                return _read(spec, connection)
        finally:
            engine.dispose()
    except (SQLAlchemyError, ImportError, ValueError) as error:
        message = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        raise TableUnreadable(spec.name, spec.place, safe_url(spec), message) from error


def safe_url(spec: TableSpec) -> str:
    """The url for messages, without its password."""
    return redacted_url(_url(spec))


def _url(spec: TableSpec) -> str:
    assert spec.location is not None, f"table {spec.name!r} has no location"
    scheme, _, rest = spec.location.partition(":")
    if scheme == "sqlite":
        path = rest.removeprefix("///") if rest.startswith("///") else rest
        full = os.path.join(spec.base or os.getcwd(), os.path.expanduser(path))
        # Read only: a file that is not there must not be made by looking for it.
        return f"sqlite:///file:{full}?mode=ro&uri=true"
    if scheme in ("postgresql", "postgres"):
        return f"postgresql+psycopg:{rest}"
    return spec.location


def _read(spec: TableSpec, connection: Connection) -> pa.Table:
    import sqlalchemy as sa

    query = spec.options.get("query")
    if query is not None:
        result = connection.execute(sa.text(query))
        names, types = list(result.keys()), None
    else:
        schema_name, _, table_name = spec.options.get("table", spec.name).rpartition(".")
        look = sa.inspect(connection)
        if not (look.has_table(table_name, schema_name or None)):
            known = [*look.get_table_names(schema_name or None), *look.get_view_names(schema_name or None)]
            hint = f"known tables: {', '.join(sorted(known)[:10]) or 'none'}{did_you_mean(table_name, known)}"
            raise TableUnreadable(spec.name, spec.place, safe_url(spec), f"it has no table {table_name!r}", hint)
        table = sa.Table(table_name, sa.MetaData(), schema=schema_name or None, autoload_with=connection)
        result = connection.execute(sa.select(table))
        names, types = [column.name for column in table.columns], [column.type for column in table.columns]
    columns = list(zip(*result.fetchall(), strict=True)) or [()] * len(names)
    wanted = _wanted(spec, names)
    arrays = []
    for index, name in enumerate(names):
        if wanted is not None:
            data_type = wanted.field(name).type if name in wanted.names else None
        else:
            data_type = None if types is None else arrow_type(types[index], connection.dialect.name)
        if wanted is None or data_type is not None:
            arrays.append((name, _array(spec, name, columns[index], data_type)))
    return pa.table(dict(arrays)) if wanted is None else pa.table(dict(arrays)).select(wanted.names)


def _wanted(spec: TableSpec, names: Sequence[str]) -> pa.Schema | None:
    if "schema" not in spec.options:
        return None
    wanted = parse_ddl(spec.options["schema"])
    for name in wanted.names:
        if name not in names:
            hint = f"its columns: {', '.join(names)}{did_you_mean(name, list(names))}"
            raise TableUnreadable(spec.name, spec.place, safe_url(spec), f"it has no column {name!r}", hint)
    return wanted


def arrow_type(declared: TypeEngine[Any], dialect: str) -> ArrowType:
    """The Arrow type for a column of a database; what nothing else fits is text."""
    import sqlalchemy as sa

    if isinstance(declared, sa.ARRAY):
        return pa.list_(arrow_type(declared.item_type, dialect))
    if isinstance(declared, sa.DateTime):
        return TIMESTAMP if declared.timezone else TIMESTAMP_NTZ
    if isinstance(declared, sa.Float):
        return pa.float64()
    if isinstance(declared, sa.Numeric):
        precision, scale = declared.precision or 38, declared.scale or 0
        return pa.decimal128(38, 18) if declared.precision is None else pa.decimal128(precision, scale)
    if isinstance(declared, sa.Integer) and dialect == "sqlite":
        return pa.int64()  # There every integer has 64 bits, whatever it is called.
    for kind, found in (
        (sa.Boolean, pa.bool_()),
        (sa.SmallInteger, pa.int16()),
        (sa.BigInteger, pa.int64()),
        (sa.Integer, pa.int32()),
        (sa.Date, pa.date32()),
        (sa.LargeBinary, pa.binary()),
    ):
        if isinstance(declared, kind):
            return found
    return pa.string()


def _array(spec: TableSpec, name: str, values: Sequence[Any], data_type: ArrowType | None) -> ArrowArray:
    if data_type is None and all(value is None for value in values):
        data_type = pa.string()
    try:
        if data_type is not None and pa.types.is_string(data_type):
            values = [_text(value) for value in values]
        return pa.array(values, data_type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        message = f"column {name!r} holds values that do not fit {data_type or 'one type'}: {error}"
        hint = "say what they are: schema=..., or convert them in query=..."
        raise TableUnreadable(spec.name, spec.place, safe_url(spec), message, hint) from error


def _text(value: Any) -> str | None:
    """A value as text: JSON for what has parts, else as Python prints it."""
    if value is None or isinstance(value, str):
        return value
    as_text: Callable[[Any], str] = json.dumps if isinstance(value, dict | list) else str
    return as_text(value)
