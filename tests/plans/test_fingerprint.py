"""The fingerprint of a view: the same in every process, another one when the answers could be others."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType

from penstock.modes.changed import differences
from penstock.plans.fingerprint import canonical, fingerprint, spark_parts
from penstock.spark.session_settings import settings_for_now
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


def shown(spark: SparkSession) -> list[Mapping[str, str]]:
    return [
        analysed(spark, with_udf(1)).parts,
        analysed(
            spark, "WITH a AS (SELECT * FROM access) SELECT url, count(*) AS n FROM a GROUP BY url", ["url"]
        ).parts,
        analysed(
            spark, lambda orders: orders.select(sf.transform("tags", lambda tag: sf.concat(tag, tag)).alias("t"))
        ).parts,
    ]


def test_the_fingerprint_is_the_same_in_every_process(spark: SparkSession) -> None:
    command = [sys.executable, "-c", SCRIPT]
    other = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert other.stdout.strip().splitlines()[-1] == str(shown(spark)), other.stderr[-2000:]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("'0xaaaa1111'", "'0xbbbb2222'"),
        ("'ann@facade.com'", "'ann@decade.com'"),
        ("'ticket #1'", "'ticket #2'"),
        ("'lambda x_1#'", "'lambda x_2#'"),
        ("X'00112233'", "X'44556677'"),
        ("(SELECT max(n) FROM VALUES (1) AS t(n))", "(SELECT max(n) FROM VALUES (2) AS t(n))"),
    ],
)
def test_a_constant_that_looks_like_an_id_or_an_address_counts(spark: SparkSession, before: str, after: str) -> None:
    sql = "SELECT url, count(*) AS n FROM access WHERE ip = {} GROUP BY url"
    one, other, again = (analysed(spark, sql.format(each), ["url"]).parts for each in (before, after, before))
    assert one == again
    assert differences(one, other) == ["its query"]


def test_what_changes_answers_changes_the_fingerprint(spark: SparkSession) -> None:
    sql = "SELECT url, count(*) AS n FROM access WHERE status = 500 GROUP BY url"
    first = analysed(spark, sql, ["url"]).parts
    assert analysed(spark, sql.lower(), ["url"]).parts == first
    others = [
        analysed(spark, sql.replace("500", "501"), ["url"]),
        analysed(spark, sql.replace(" AS n", " AS m"), ["url"]),
        analysed(spark, sql, ["url"], kept="redo"),
        analysed(spark, sql, ["url"], merge={"n": "sum"}),
        analysed(spark, sql, ["url"], kept="redo", within={"*": ("url",)}),
    ]
    changed = [
        ["its query"],
        ["its columns"],
        ["kept=: none before, redo now"],
        ["merge=: none before, {'n': 'sum'} now"],
        ["within=: none before, {'*': ('url',)} now", "kept=: none before, redo now"],
    ]
    assert [differences(first, each.parts) for each in others] == changed
    assert len({fingerprint(parts) for parts in (first, *(each.parts for each in others))}) == 6
    [captured] = differences(analysed(spark, with_udf(1)).parts, analysed(spark, with_udf(2)).parts)
    assert captured == "variable step of function with_udf.label in test_fingerprint.py"


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("spark.sql.session.timeZone", "Europe/Berlin"),
        ("spark.sql.ansi.enabled", "false"),
        ("spark.sql.caseSensitive", "true"),
    ],
)
def test_a_setting_that_changes_answers_counts(spark: SparkSession, name: str, other: str) -> None:
    before = spark_parts(spark)
    with settings_for_now(spark, {name: other}):
        now = spark_parts(spark)
    assert before["Spark"] == spark.version
    assert now[f"setting {name}"] == other
    assert differences(before, now) == [f"setting {name}: {before[f'setting {name}']} before, {other} now"]


def test_settings_of_older_answers_count_where_they_are_set(spark: SparkSession) -> None:
    before = spark_parts(spark)
    spark.conf.set("spark.sql.legacy.sizeOfNull", "false")
    try:
        assert differences(before, spark_parts(spark)) == ["setting spark.sql.legacy.sizeOfNull is new"]
    finally:
        spark.conf.unset("spark.sql.legacy.sizeOfNull")


def test_a_captured_megabyte_is_the_same_in_every_plan(spark: SparkSession) -> None:
    def captured(count: int) -> Callable[..., Any]:
        names = {str(number) * 8 for number in range(count)}
        return with_udf(1, frozenset(names))

    first, same, other = (analysed(spark, captured(count)).parts for count in (200_000, 200_000, 200_001))
    assert first == same
    assert differences(first, other) == ["variable names of function with_udf.label in test_fingerprint.py"]


def test_a_registered_function_above_a_megabyte_counts_in_sql(spark: SparkSession) -> None:
    """It travels as a broadcast, and the view itself has no function to look at instead."""

    def parts(step: int, count: int = 200_000) -> Mapping[str, str]:
        names = frozenset(str(number) * 8 for number in range(count))

        def label(value: int) -> int:
            return helper(value) + step if str(value) not in names else 0

        spark.udf.register("label", label, IntegerType())
        return analysed(spark, "SELECT ip, label(status) AS n FROM access", ["ip"]).parts

    where = "of function test_a_registered_function_above_a_megabyte_counts_in_sql.parts.label in test_fingerprint.py"
    first = parts(1)
    assert parts(1) == first
    assert differences(first, parts(2)) == [f"variable step {where}"]
    assert differences(first, parts(1, 200_001)) == [f"variable names {where}"]


def test_ids_are_counted_anew() -> None:
    assert canonical("Project [a#71, b#9L AS c#70]") == canonical("Project [a#3, b#12L AS c#8]")
    assert canonical("Project [a#71, b#9L]") != canonical("Project [a#71, b#71L]")
