"""Access-log events and their schema, for tests of encoding."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from penstock.events.encode import Encoded
from penstock.events.schema import parse_ddl

ACCESS = parse_ddl("time timestamp, ip string, status int NOT NULL, url string, seconds double")
GOOD: dict[str, Any] = {
    "time": datetime(2026, 1, 31, 12, tzinfo=UTC),
    "ip": "10.0.0.1",
    "status": 200,
    "url": "/",
    "seconds": 0.25,
}
NOON_US = 1_769_860_800_000_000


def comparable(encoded: Encoded) -> tuple[str, list[tuple[str, str | None, int]], list[int]]:
    """An outcome as something that compares NaN as equal."""
    encoded.batch.validate(full=True)
    kept = range(encoded.batch.num_rows) if encoded.kept is None else encoded.kept.tolist()
    rejected = [(one.reason, one.column, one.index) for one in encoded.rejected]
    return repr(encoded.batch.to_pylist()), rejected, list(kept)
