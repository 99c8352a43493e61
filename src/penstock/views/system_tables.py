"""The tables of Penstock's own in the database of the views: who owns a pipeline, what was built, what is to be sent.

They are named `_penstock_...`, which no view can be. Made by `create_system_tables`, once, by whoever comes first.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
)
from sqlalchemy.schema import CreateTable

METADATA = MetaData()

_CREATING = 0x70656E73746F636B
"""Number of PostgreSQL's advisory lock for making tables: two CREATE TABLE IF NOT EXISTS at once can collide there."""

OWNER = Table(
    "_penstock_owner",
    METADATA,
    Column("pipeline", Text, primary_key=True),
    Column("epoch", BigInteger, nullable=False),  # Grows by one with each owner and never goes back.
    Column("holder", Text),  # Random, new for each owner; NULL if it was given back.
    Column("pid", Integer, nullable=False),
    Column("process_start", BigInteger, nullable=False),  # So that a pid used again is not taken for the owner.
    Column("host", Text, nullable=False),
    Column("boot", Text, nullable=False),
    Column("lease_us", BigInteger, nullable=False),
    Column("started_us", BigInteger, nullable=False),
    Column("renewed_us", BigInteger, nullable=False),
)

GENERATIONS = Table(
    "_penstock_generations",
    METADATA,
    Column("pipeline", Text, primary_key=True),
    Column("set_name", Text, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("state", Text, nullable=False),
    Column("fence", Text, nullable=False),
    Column("counters", Text, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("switched_us", BigInteger),
    Column("retired_us", BigInteger),
    Column("beneath", Integer),  # The number of the batch part that this one is the speed part of.
)

VIEWS = Table(
    "_penstock_views",
    METADATA,
    Column("pipeline", Text, primary_key=True),
    Column("set_name", Text, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),  # Topological order within the set.
    Column("view_name", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("description", Text, nullable=False),  # JSON
    Column("arrow_schema", LargeBinary, nullable=False),  # Arrow IPC
)

OUTBOX = Table(
    "_penstock_outbox",
    METADATA,
    Column("pipeline", Text, primary_key=True),
    Column("topic", Text, primary_key=True),
    Column("first_id", BigInteger, primary_key=True, autoincrement=False),
    Column("records", Integer, nullable=False),  # They have the ids first_id, first_id + 1, ...
    Column("payload", LargeBinary, nullable=False),  # Arrow IPC
)

OUTBOX_IDS = Table(
    "_penstock_outbox_ids",
    METADATA,
    Column("pipeline", Text, primary_key=True),
    Column("topic", Text, primary_key=True),
    Column("last_id", BigInteger, nullable=False),  # Stays when the outbox is empty: ids are never used again.
)

REQUESTS = Table(
    "_penstock_requests",
    METADATA,
    Column("pipeline", Text, primary_key=True),
    Column("request", Text, primary_key=True),
    Column("asked_us", BigInteger, nullable=False),
)


def create_system_tables(connection: Connection) -> None:
    """Makes what is missing. Any number of processes may do this at once."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _CREATING})
    for table in METADATA.sorted_tables:
        connection.execute(CreateTable(table, if_not_exists=True))
