"""The tables of Penstock's own in the database of the views: who owns a pipeline, what was built, what is to be sent.

They are named `_penstock_...`, which no view can be. Made by `create_system_tables`, once, by whoever comes first.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
)
from sqlalchemy.schema import CreateIndex, CreateTable

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

RUNS = Table(
    "_penstock_runs",
    METADATA,
    Column("pipeline", Text, primary_key=True),
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("mode", Text, primary_key=True),
    Column("pid", Integer, nullable=False),
    Column("host", Text, nullable=False),
    Column("started_us", BigInteger, nullable=False),
    Column("seen_us", BigInteger, nullable=False),
    Column("ended_us", BigInteger),  # NULL while it runs, and if it was killed.
    Column("outcome", Text, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("steps", BigInteger, nullable=False),
    Column("samples", Text, nullable=False),  # JSON
)

RUN_STEPS = Table(
    "_penstock_run_steps",
    METADATA,
    Column("pipeline", Text, primary_key=True),
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("mode", Text, primary_key=True),
    Column("views", Text, nullable=False),  # JSON: by view, steps computed in the driver and by Spark.
)

REALTIME = Table(
    "_penstock_realtime",
    METADATA,
    Column("pipeline", Text, primary_key=True),
    Column("topic", Text, primary_key=True),  # A changelog that was written record at a time.
    Column("view_name", Text, nullable=False),
    Column("started_us", BigInteger, nullable=False),
)

ALERTS = Table(
    "_penstock_alerts",
    METADATA,
    Column("pipeline", Text, primary_key=True),
    Column("alert", Text, primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("view_name", Text, nullable=False),
    Column("receiver", Text, nullable=False),  # Empty: the alert itself failed, and nobody is told.
    Column("text", Text, nullable=False),
    Column("told_rows", Text, nullable=False),  # JSON, the first of them.
    Column("rows_total", BigInteger, nullable=False),
    Column("clock_us", BigInteger, nullable=False),  # The arrival clock of the step.
    Column("created_us", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("first_us", BigInteger),  # When it was first tried.
    Column("next_us", BigInteger),  # When it is tried next; NULL once it is settled.
    Column("sent_us", BigInteger),
    Column("error", Text),
    Column("holder", Text),  # Who is sending it now,
    Column("lease_us", BigInteger),  # and until when nobody else does.
    Index("_penstock_alerts_due", "state", "next_us"),
    Index("_penstock_alerts_recent", "created_us"),
)

ALERTS_TOLD = Table(
    "_penstock_alerts_told",
    METADATA,
    Column("pipeline", Text, primary_key=True),
    Column("alert", Text, primary_key=True),
    Column("key", LargeBinary, primary_key=True),  # The hash of the row's key.
    Column("told_us", BigInteger, nullable=False),  # By the arrival clock.
    Index("_penstock_alerts_told_over", "pipeline", "alert", "told_us"),
)

ALERTS_LAST = Table(
    "_penstock_alerts_last",
    METADATA,
    Column("pipeline", Text, primary_key=True),
    Column("alert", Text, primary_key=True),
    Column("number", BigInteger, nullable=False),  # Stays when entries go: numbers are never used again.
    Column("clock_us", BigInteger, nullable=False),  # Nobody is told of what was before.
)


def create_system_tables(connection: Connection) -> None:
    """Makes what is missing. Any number of processes may do this at once."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _CREATING})
    for table in METADATA.sorted_tables:
        connection.execute(CreateTable(table, if_not_exists=True))
        for index in sorted(table.indexes, key=lambda each: str(each.name)):
            connection.execute(CreateIndex(index, if_not_exists=True))
