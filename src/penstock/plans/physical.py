"""Small frames without planning: the physical plan of a view is made once, and run again over other rows.

Most of a small step is Spark planning the same job again. Where a plan is a chain of operators over rows in the driver,
with nothing that remembers what it computed (no exchange, no subquery, no cache), the rows at its bottom are replaced
instead, and the plans of all views of a step run as one job.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.serializers import FramedSerializer
from pyspark.util import _load_from_socket

from penstock.plans.jvm import Catalyst, Java, simple_name
from penstock.plans.rows import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

PLAN = "__plan"
"""A column that says which plan a row of a shared job comes from."""
READY = "_penstock_ready"
"""Where a frame keeps the function that makes it ready to run without planning; see `collect`."""
NUMBER = pa.field(PLAN, pa.int32())

_FORGETFUL = frozenset(
    {
        "CoalesceExec",
        "ExpandExec",
        "FilterExec",
        "GenerateExec",
        "HashAggregateExec",
        "InputAdapter",
        "LocalTableScanExec",
        "ObjectHashAggregateExec",
        "ProjectExec",
        "SortAggregateExec",
        "SortExec",
        "WholeStageCodegenExec",
        "WindowExec",
    }
)
"""Operators that can run again over other rows: they keep nothing from one run to the next."""

_BLIND = frozenset(
    {
        "Aggregate",
        "Expand",
        "Filter",
        "Generate",
        "LocalRelation",
        "Project",
        "Repartition",
        "SubqueryAlias",
        "View",
        "Window",
    }
)
"""What a view may say: nothing whose plan depends on how many rows there are, as that of LIMIT does."""

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Ready:
    """One physical plan over rows, ready to run."""

    number: int
    schema: StructType
    rdd: Java


class PhysicalPlan:
    """The physical plan of one view. `over` is None for rows it cannot be run over."""

    def __init__(self, maker: Catalyst, schema: StructType) -> None:
        self._maker = maker
        self._schema = schema
        self._number = next(_numbers)
        self._lock = threading.Lock()
        self._dataset: Java = None
        self._physical: Java = None
        self._scans: dict[int, Java] = {}
        self._is_possible = True

    def over(self, plan: Java, leaves: Mapping[int, Java]) -> Ready | None:
        """The plan over these rows: `plan` is the analyzed one, `leaves` its local relations by the id of their first
        attribute."""
        with self._lock:
            # Of one row, or none, the optimizer knows too much: what it leaves out then would be missing later.
            has_rows = all(leaf.data().size() > 1 for leaf in leaves.values())
            if self._physical is None and self._is_possible and has_rows:
                self._is_possible = self._prepare(plan, leaves)
        if self._physical is None or not self._is_possible or leaves.keys() != self._scans.keys():
            return None
        maker = self._maker
        with maker.quickly():
            pairs = [(scan, maker.scan_over(scan, leaves[first].data())) for first, scan in self._scans.items()]
            physical = self._physical.transformUp(maker.partial_function(pairs))
            return Ready(self._number, self._schema, self._dataset.toArrowBatchRdd(physical))

    def _prepare(self, plan: Java, leaves: Mapping[int, Java]) -> bool:
        """Plans it. False if something in it would remember these rows, or how many there are."""
        maker = self._maker
        if not all(simple_name(node) in _BLIND for node in maker.nodes(plan)):
            return False
        number = maker.alias(maker.literal(self._number), PLAN)
        numbered = maker.project([number, *maker.items(plan.output())], plan)
        numbered.setAnalyzed()
        self._dataset = maker.quick_dataset(numbered)
        physical = self._dataset.queryExecution().executedPlan()
        nodes = [*maker.nodes(physical)]
        if not all(simple_name(node) in _FORGETFUL for node in nodes) or not physical.subqueriesAll().isEmpty():
            return False
        scans = [node for node in nodes if simple_name(node) == "LocalTableScanExec"]
        found = {scan.output().head().exprId().id(): scan for scan in scans if not scan.output().isEmpty()}
        # The very same rows and columns, or the optimizer has computed something into them.
        is_bare = (
            len(found) == len(scans)
            and found.keys() == leaves.keys()
            and all(
                _same_rows(maker, scan.rows(), leaves[first].data()) and scan.output().equals(leaves[first].output())
                for first, scan in found.items()
            )
        )
        if not is_bare:
            return False
        self._scans, self._physical = found, physical
        return True


def _same_rows(maker: Catalyst, one: Java, other: Java) -> bool:
    """Whether two sequences hold the very same rows, not copies of them."""
    if one.size() != other.size():
        return False
    return maker.is_same(one.head(), other.head()) and maker.is_same(one.last(), other.last())


def run_ready(maker: Catalyst, plans: Sequence[Ready]) -> list[pa.Table]:
    """The rows of each, computed in one job."""
    batches: dict[int, list[pa.RecordBatch]] = {plan.number: [] for plan in plans}
    schemas = {plan.number: arrow_schema(plan.schema) for plan in plans}
    assert len(schemas) == len(plans), "one plan is asked for twice"
    with _load_from_socket(maker.serve([plan.rdd for plan in plans]), _Bytes()) as messages:
        for message in messages:
            number, batch = _read(message, schemas)
            batches[number].append(batch)
    return [pa.Table.from_batches(batches[plan.number], schemas[plan.number]) for plan in plans]


class _Bytes(FramedSerializer):
    """Arrays of bytes as Spark serves them, each behind its length."""

    def loads(self, obj: bytes) -> bytes:
        return obj

    def dumps(self, obj: bytes) -> bytes:
        return obj


def _read(message: bytes, schemas: Mapping[int, pa.Schema]) -> tuple[int, pa.RecordBatch]:
    """An Arrow message, which comes without its schema: its first column says which plan it belongs to."""
    first = pa.ipc.read_record_batch(pa.py_buffer(message), pa.schema([NUMBER]))
    number: int = first.column(0)[0].as_py()
    whole = pa.ipc.read_record_batch(pa.py_buffer(message), pa.schema([NUMBER, *schemas[number]]))
    return number, pa.RecordBatch.from_arrays(whole.columns[1:], schema=schemas[number])
