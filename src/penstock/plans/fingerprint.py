"""What the answers of a view depend on, as named parts, each with a short text that changes when they could.

The plan, what the definition says, the code of Python functions (`reached.py`), Spark's settings and version. A text is
a digest (`#` and 16 hexadecimal digits), or says itself what it is, such as `UTC`. The same in every process and every
run: ids that Spark counts up are numbered anew.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.plans.decision import Input
from penstock.plans.reached import reached
from penstock.plans.tree import Node
from penstock.plans.versions import version_of
from penstock.plans.whitelist import LEAVES
from penstock.spark.private.analysis import plan_analysis
from penstock.spark.private.pickles import unpickled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.pipeline.definition import ViewSpec

QUERY = "its query"
"""The plan: all that Spark itself is asked to compute."""
COLUMNS = "its columns"
_LEGACY = "spark.sql.legacy."
_SETTINGS = (
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
    "spark.sql.caseSensitive",
    "spark.sql.timestampType",
    "spark.sql.mapKeyDedupPolicy",
    "spark.sql.decimalOperations.allowPrecisionLoss",
    "spark.sql.jsonGenerator.ignoreNullFields",
    "spark.sql.execution.pythonUDF.arrow.enabled",
    "spark.sql.legacy.timeParserPolicy",
)
"""What changes answers of one and the same plan; what changes the plan is seen there."""
_VECTORS = 200
"""From this evaluation type on, a function is handed columns of pandas or Arrow."""
_UDFS = {"PythonUDF", "PythonUDAF", "PythonUDTF"}
_ADDRESS = re.compile(r"\$\$Lambda[\w$/]*|(?<= at )0x[0-9a-f]{4,}(?=>)|@[0-9a-f]{5,}\b")
_LAMBDA_VARIABLE = re.compile(r"\blambda [xyz]_\d+(?=#)")
"""PySpark names the parameters of a lambda by itself, and counts them up through the whole process."""


def view_parts(spec: ViewSpec, inputs: Mapping[str, Input], frame: DataFrame, plan: Node, text: str) -> dict[str, str]:
    """What the answers of a view depend on, but for Spark's settings and the content of tables."""
    options = {
        "key": spec.key,
        "merge": dict(sorted(spec.merge.items())),
        "within": dict(sorted(spec.within.items())),
        "late": spec.late,
        "horizon": spec.horizon and str(spec.horizon),
        "kept": spec.kept,
    }
    return {
        QUERY: hashed("\0".join([canonical(text), *_written_down(spec, plan)])),
        COLUMNS: hashed(frame.schema.json()),
        **{
            f"input {name}": hashed(
                repr([each.kind, each.schema.json(), str(each.lateness), each.event_time, each.key])
            )
            for name, each in sorted(inputs.items())
        },
        **{f"{name}=": "none" if value in (None, {}) else str(value) for name, value in options.items()},
        **_code(spec, frame, plan),
    }


def spark_parts(spark: SparkSession) -> dict[str, str]:
    """What the answers of every view depend on: Spark's version, and its settings as far as they change answers."""
    found: dict[str, str | None] = {"Spark": spark.version}
    for name in _SETTINGS:
        with suppress(Exception):  # A version of Spark that does not know it.
            found[f"setting {name}"] = spark.conf.get(name)
    chosen = spark.conf.getAll
    found |= {f"setting {name}": chosen[name] for name in sorted(chosen) if name.startswith(_LEGACY)}
    return {name: str(value) for name, value in found.items()}


def fingerprint(parts: Mapping[str, str]) -> str:
    """32 hexadecimal digits that change when any part does."""
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()


def hashed(text: str) -> str:
    """A part whose text says nothing to people: as `#` and 16 hexadecimal digits."""
    return f"#{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"


def canonical(text: str) -> str:
    """The text of a plan with its expression ids counted from 0 in the order in which they appear."""
    numbers: dict[str, int] = {}
    text = _LAMBDA_VARIABLE.sub("lambda ", text)
    text = re.sub(r"(CTERelation(?:Def|Ref)) (\d+)", r"\1 #\2", text)
    renumbered = re.sub(r"#(\d+)L?", lambda found: f"#{numbers.setdefault(found[1], len(numbers))}", text)
    return _ADDRESS.sub("", renumbered)


def _written_down(spec: ViewSpec, plan: Node) -> Iterator[str]:
    """What a canonical text may lose: constants that look like ids or addresses (`#7`, `@cafe5`), and rows in SQL."""
    for node in plan.everywhere():
        for whole in node.expressions():
            for each in whole.walk():
                # Of bytes the JSON has no more than their address, and the text all of them.
                if each.kind == "Literal" and each.fields.get("dataType") != "binary":
                    yield str(each.fields.get("value"))
        if node.kind in LEAVES - {"OneRowRelation"} and spec.sql is not None:
            yield spec.sql


def _code(spec: ViewSpec, frame: DataFrame, plan: Node) -> dict[str, str]:
    """The Python functions in the plan; and the view's own, where it wrote rows that the plan hides."""
    roots: list[Any] = []
    expressions = [each for node in plan.everywhere() for whole in node.expressions() for each in whole.walk()]
    if any(each.kind in _UDFS for each in expressions):
        for pickled in plan_analysis.python_functions(frame):
            try:
                roots.append(unpickled(*pickled))
            except Exception:  # What a function pickles into may need anything to be loaded again.
                roots.append(spec.function)  # It made the other one, so it reaches the same.
    if any(node.kind in LEAVES - {"OneRowRelation"} for node in plan.everywhere()):
        roots.append(spec.function)
    roots = [root for root in roots if root is not None]
    if not roots:
        return {}
    is_vector = any(each.fields.get("evalType", 0) >= _VECTORS for each in expressions)
    libraries = {f"library {name}": version_of(name) for name in ("pandas", "pyarrow")} if is_vector else {}
    python = ".".join(map(str, sys.version_info[:2]))
    return {**reached(roots, spec.place.file), **libraries, "Python": python}


def functions_of(frame: DataFrame) -> Iterator[Any]:
    """The Python functions of a frame's plan, as far as they can be loaded again."""
    for pickled in plan_analysis.python_functions(frame):
        try:
            yield unpickled(*pickled)
        except Exception:
            continue
