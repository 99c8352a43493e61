"""The clock of the database: the one that all machines which use it have in common.

Leases go by it. The clocks of two machines may differ by more than a lease, and one of them would take what the other
still holds.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Connection, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler

from penstock.clock import Clock


class _Now(ColumnElement[int]):
    type = BigInteger()
    inherit_cache = True


DATABASE_NOW_US = _Now()
"""The moment at which a statement runs, in microseconds since 1970. In SQLite only as exact as milliseconds."""


def moment_us(connection: Connection, clock: Clock | None = None) -> int:
    """What time it is on the database's clock, or on the one that a test has handed in."""
    if clock is not None:
        return clock()
    moment: int = connection.execute(select(DATABASE_NOW_US)).scalar_one()
    return moment


@compiles(_Now, "postgresql")
def _in_postgresql(_: _Now, __: SQLCompiler, **___: Any) -> str:
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)"


@compiles(_Now, "sqlite")
def _in_sqlite(_: _Now, __: SQLCompiler, **___: Any) -> str:
    return "CAST(unixepoch('now', 'subsec') * 1000000 AS INTEGER)"
