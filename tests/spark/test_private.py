"""Private parts of Spark are used in one package only, so that a newer Spark is a matter of that package."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

PACKAGE = ROOT / "src" / "penstock"
PRIVATE = PACKAGE / "spark" / "private"
NAMES = {
    "_active_spark_context",
    "_gateway",
    "_jconf",
    "_jc",
    "_jdf",
    "_jsc",
    "_jsparkSession",
    "_jvm",
    "executedPlan",
    "queryExecution",
    "sessionState",
}
"""Attributes of PySpark's objects that lead into the JVM, and what is asked of Spark's own there."""
MODULES = ("py4j", "pyspark.java_gateway")


def private_uses(path: Path) -> Iterator[str]:
    """What a file uses of Spark's private parts."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and node.attr in NAMES:
            yield f"line {node.lineno}: .{node.attr}"
        elif isinstance(node, ast.Attribute) and node.attr == "catalyst":
            yield f"line {node.lineno}: a class of Catalyst"
        elif isinstance(node, ast.Import):
            yield from (f"line {node.lineno}: {each.name}" for each in node.names if _is_private(each.name))
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            for each in node.names:
                if _is_private(node.module) or (node.module.startswith("pyspark") and each.name.startswith("_")):
                    yield f"line {node.lineno}: {each.name} of {node.module}"


def _is_private(module: str) -> bool:
    return any(module == each or module.startswith(f"{each}.") for each in MODULES) or (
        module.startswith("pyspark.") and any(part.startswith("_") for part in module.split("."))
    )


def test_only_one_package_uses_private_parts_of_spark() -> None:
    files = [path for path in PACKAGE.rglob("*.py") if PRIVATE not in path.parents]
    assert len(files) > 100
    found = {str(path.relative_to(PACKAGE)): [*private_uses(path)] for path in files}
    assert {path: uses for path, uses in found.items() if uses} == {}, "move it to penstock.spark.private"


@pytest.mark.parametrize(
    "line",
    [
        "frame._jdf",
        "frame.sparkSession._jvm.scala",
        "context._jsc.sc()",
        "from py4j.protocol import Py4JJavaError",
        "import py4j",
        "from pyspark.java_gateway import launch_gateway",
        "from pyspark.sql.column import _to_seq",
        "import pyspark.sql._typing",
        "java.org.apache.spark.sql.catalyst.util",
    ],
)
def test_a_private_part_is_recognised(tmp_path: Path, line: str) -> None:
    (tmp_path / "use.py").write_text(line)
    assert [*private_uses(tmp_path / "use.py")]
