"""The fingerprint of a view: the same in every process, another one when the answers could be others."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType

from penstock.plans.fingerprint import canonical, code_of
from tests.conftest import ROOT
from tests.plans.views import analysed

pytestmark = pytest.mark.spark

SCRIPT = """
from pyspark.sql import functions as sf
from penstock.settings import SparkSettings
from penstock.spark import session
from tests.plans.test_fingerprint import shown

spark = session(SparkSettings(master="local[1]", shuffle_partitions=1))
spark.range(7).selectExpr("id + 1 AS n").schema  # Other ids than in the test's own process,
spark.range(7).select(sf.transform(sf.array("id"), lambda n: n + 1)).schema  # and other names of lambdas' parameters.
print(shown(spark))
"""


def with_udf(step: int, names: frozenset[str] = frozenset("abcdefgh")) -> Callable[..., Any]:
    def label(value: int) -> int:
        return helper(value) + step if str(value) not in names else 0

    def view(access: Any) -> Any:
        return access.select("ip", sf.udf(label, IntegerType())("status").alias("n"))

    return view


def helper(value: int) -> int:
    return value * 2


def shown(spark: SparkSession) -> list[str]:
    return [
        analysed(spark, with_udf(1)).fingerprint,
        analysed(
            spark, "WITH a AS (SELECT * FROM access) SELECT url, count(*) AS n FROM a GROUP BY url", ["url"]
        ).fingerprint,
        analysed(
            spark, lambda orders: orders.select(sf.transform("tags", lambda tag: sf.concat(tag, tag)).alias("t"))
        ).fingerprint,
    ]


def test_the_fingerprint_is_the_same_in_every_process(spark: SparkSession) -> None:
    command = [sys.executable, "-c", SCRIPT]
    other = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert other.stdout.strip().splitlines()[-1] == str(shown(spark)), other.stderr[-2000:]


def test_what_changes_answers_changes_the_fingerprint(spark: SparkSession) -> None:
    sql = "SELECT url, count(*) AS n FROM access WHERE status = 500 GROUP BY url"
    first = analysed(spark, sql, ["url"]).fingerprint
    assert analysed(spark, sql.lower(), ["url"]).fingerprint == first
    others = [
        analysed(spark, sql.replace("500", "501"), ["url"]),
        analysed(spark, sql.replace(" AS n", " AS m"), ["url"]),
        analysed(spark, sql, ["url"], kept="redo"),
        analysed(spark, sql, ["url"], merge={"n": "sum"}),
        analysed(spark, sql, ["url"], kept="redo", within={"*": ("url",)}),
    ]
    assert len({first, *(each.fingerprint for each in others)}) == 6
    assert analysed(spark, with_udf(1)).fingerprint != analysed(spark, with_udf(2)).fingerprint


def test_code_counts_and_names_of_objects_do_not() -> None:
    def one(a: int, b: int = 1) -> int:
        return a + b

    def other(a: int, b: int = 2) -> int:
        return a + b

    def same(a: int, b: int = 1) -> int:
        return a + b

    assert code_of(one) == code_of(same)
    assert code_of(one) != code_of(other)
    assert "0x" not in code_of([object(), one])


def test_ids_are_counted_anew() -> None:
    assert canonical("Project [a#71, b#9L AS c#70]") == canonical("Project [a#3, b#12L AS c#8]")
    assert canonical("Project [a#71, b#9L]") != canonical("Project [a#71, b#71L]")
