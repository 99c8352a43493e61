"""Whether small plans may run in the driver: asked once of each session, before the first one does.

What runs there uses private parts of Spark, which a setting or another version may change. So rows with a value of
every type go through a small plan and through Spark's own scheduler, and must come out alike.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql import functions as sf

from penstock.events.schema import parse_ddl, to_spark
from penstock.spark.private.rows import arrow_schema, from_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTING = "spark.penstock.small_plans"
"""`auto`, or `off`: then Spark's scheduler runs every plan."""

_log = logging.getLogger(__name__)
_known: WeakKeyDictionary[SparkSession, bool] = WeakKeyDictionary()
_lock = threading.Lock()

_SCHEMA = to_spark(
    parse_ddl(
        "id int, is boolean, tiny tinyint, small smallint, big bigint, single float, half double, "
        "exact decimal(38,18), short decimal(9,2), text string, bytes binary, day date, at timestamp, "
        "wall timestamp_ntz, list array<string>, part struct<name: string, n: int>, pairs map<string, binary>"
    )
)
_ROW: dict[str, Any] = {
    "is": True,
    "tiny": -7,
    "small": 30_000,
    "big": -(2**62),
    "single": 0.5,
    "half": 0.1,
    "exact": Decimal("12345678901234567890.123456789012345678"),
    "short": Decimal("-1.25"),
    "text": "a text that is längër than twelve bytes",
    "bytes": b"\x00\xff",
    "day": date(1969, 7, 20),
    "at": datetime(2026, 1, 31, 12, 30, 0, 123456, UTC),
    "wall": datetime(1582, 10, 15, 1, 2, 3, 4, UTC).replace(tzinfo=None),
    "list": ["", None, "three"],
    "part": {"name": "x", "n": None},
    "pairs": [("k", b"v"), ("n", None)],
}


def uses_small_plans(spark: SparkSession, run: Callable[[DataFrame, Build], pa.Table | None]) -> bool:
    """Whether this session's small plans run in the driver. `run` gives what a plan does there, over these rows."""
    found = _known.get(spark)
    if found is None:
        with _lock:
            if spark not in _known:
                _known[spark] = spark.conf.get(SETTING, "auto") != "off" and _is_trusted(spark, run)
            found = _known[spark]
    return found


@contextmanager
def without_small_plans(spark: SparkSession) -> Iterator[None]:
    """Spark's scheduler runs every plan of this session meanwhile, as with `off`."""
    before = _known.get(spark)
    _known[spark] = False
    try:
        yield
    finally:
        if before is None:
            del _known[spark]
        else:
            _known[spark] = before


Build = Callable[["DataFrame"], "DataFrame"]


def _is_trusted(spark: SparkSession, run: Callable[[DataFrame, Build], pa.Table | None]) -> bool:
    rows = pa.Table.from_pylist([{"id": 1, **_ROW}, {"id": 2}, {"id": 3, **_ROW}], arrow_schema(_SCHEMA))
    frame = from_arrow(spark, rows, _SCHEMA)
    for build in (_grouped, _projected):
        try:
            expected = build(frame).toArrow().cast(arrow_schema(build(frame).schema)).sort_by("id")
            found = run(frame, build)
        except Exception as error:
            _warn(f"failed: {error}")
            return False
        if found is None or not found.sort_by("id").equals(expected):
            _warn("cannot be prepared" if found is None else "give other values than Spark's scheduler")
            return False
    return True


def _grouped(frame: DataFrame) -> DataFrame:
    return frame.groupBy("id").agg(*(sf.first(name).alias(name) for name in _ROW))


def _projected(frame: DataFrame) -> DataFrame:
    return frame.select("id", *_ROW).where("id > 0")


def _warn(why: str) -> None:
    _log.warning(
        "spark: small plans %s in this session, so Spark's scheduler runs every step: right, but 20 to 50 ms slower\n"
        '  to silence this: small_plans = "off" under [spark] in penstock.toml',
        why,
    )
