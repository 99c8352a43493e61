"""What cannot be replayed: expressions that give another answer when the same log is read again.

They are known by name, since Spark calls several of them deterministic: they do not change within one query. For
everything else, such as a function of a newer Spark or of a JVM library, Spark's own `deterministic` decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.plans.tree import Node
from penstock.plans.words import sql_name
from penstock.spark.private.analysis import plan_analysis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CLOCK = "use _arrived, the moment the record entered the log, or the event time"
_RANDOM = "use a hash of the row, such as xxhash64(...), which is the same in every replay"
_PLACE = "use _partition and _offset, which say where a record lies in the log and never change"

NOT_REPLAYABLE: dict[str, str] = {
    "CurrentTimestamp": _CLOCK,
    "CurrentTimestampNanos": _CLOCK,
    "CurrentBatchTimestamp": _CLOCK,
    "Now": _CLOCK,
    "CurrentDate": _CLOCK,
    "CurrentTime": _CLOCK,
    "LocalTimestamp": _CLOCK,
    "LocalTimestampNanos": _CLOCK,
    "Rand": _RANDOM,
    "Randn": _RANDOM,
    "RandStr": _RANDOM,
    "Uniform": _RANDOM,
    "Uuid": _RANDOM,
    "Shuffle": _RANDOM,
    "AesEncrypt": "it starts from random bytes each time; encrypt where the events come in",
    "MonotonicallyIncreasingID": _PLACE,
    "SparkPartitionID": _PLACE,
    "DistributedSequenceID": _PLACE,
    "InputFileName": _PLACE,
    "InputFileBlockStart": _PLACE,
    "InputFileBlockLength": _PLACE,
    "CallMethodViaReflection": "write it as a Python UDF that depends on its arguments only",
    "TryReflect": "write it as a Python UDF that depends on its arguments only",
}
"""By Catalyst class: what to write instead."""

SAMPLES = {"Sample": "filter by a hash of the row: pmod(xxhash64(...), 100) < 10"}
"""Nodes that pick rows by chance."""


def not_replayable(plan: Node) -> Iterator[tuple[str, str]]:
    """What in the plan cannot be replayed, in the user's words, and what to write instead. Each thing once."""
    found: dict[str, str] = {}
    for node in plan.everywhere():
        if node.kind in SAMPLES:
            found["sample()"] = SAMPLES[node.kind]
        for expression in node.expressions():
            for each in expression.walk():
                if each.kind in NOT_REPLAYABLE:
                    found[f"{sql_name(each.kind)}()"] = NOT_REPLAYABLE[each.kind]
                elif each.kind == "PythonUDF" and each.fields.get("udfDeterministic") is False:
                    found[f"{each.name}()"] = "it is marked asNondeterministic: make it depend on its arguments only"
    yield from found.items()


def nondeterministic(frame: DataFrame) -> Iterator[tuple[str, str]]:
    """The same, for what Spark itself calls nondeterministic. Each thing once."""
    names = [f"{each}()" for each in plan_analysis.nondeterministic(frame)]
    yield from dict.fromkeys(names, "write it as an expression that depends on its arguments only").items()
