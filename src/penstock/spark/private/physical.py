"""Small frames without planning: the physical plan of a view is made once, and run again over other rows.

Most of a small step is Spark planning the same job again and scheduling it. Where a plan is a chain of operators over
rows in the driver, with nothing that remembers what it computed (no exchange, no subquery, no cache), only the rows at
its bottom are exchanged, and it runs right here (`task`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.spark.private.jvm import Catalyst, Java, simple_name
from penstock.spark.private.rows import LocalRows, arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

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


class PhysicalPlan:
    """The physical plan of one view over one input, once it is ready. See `together` for who runs it."""

    def __init__(self, maker: Catalyst, schema: StructType) -> None:
        self.maker = maker
        self._schema = arrow_schema(schema)
        self.lock = threading.Lock()
        """Held by whoever runs it: one does at a time."""
        self.rdd: Java = None
        self.partition: Java = None
        self._is_possible = True

    def is_ready(self, rows: LocalRows, plan: Callable[[], Java]) -> bool:
        """Whether it can run over these rows; False where it has to be planned. `plan` gives the analyzed one."""
        with self.lock:
            # Of one row, or none, the optimizer knows too much: what it leaves out then would be missing later.
            if self.rdd is None and self._is_possible and rows.count > 1:
                self._is_possible = False  # Also where preparing fails: it will again.
                self._is_possible = self._prepare(rows, plan())
            return self.rdd is not None

    def table(self, messages: Sequence[bytes]) -> pa.Table:
        """What it gave, as Arrow."""
        batches = [pa.ipc.read_record_batch(pa.py_buffer(each), self._schema) for each in messages]
        return pa.Table.from_batches(batches, self._schema)

    def _prepare(self, rows: LocalRows, plan: Java) -> bool:
        """Plans it. False if something in it would remember these rows, or how many there are."""
        maker = self.maker
        if not all(simple_name(node) in _BLIND for node in maker.nodes(plan)):
            return False
        dataset = maker.quick_dataset(plan)
        physical = dataset.queryExecution().executedPlan()
        nodes = [*maker.nodes(physical)]
        if not all(simple_name(node) in _FORGETFUL for node in nodes) or not physical.subqueriesAll().isEmpty():
            return False
        leaves = maker.items(plan.collectLeaves())
        scans = [node for node in nodes if simple_name(node) == "LocalTableScanExec"]
        if len(leaves) != 1 or len(scans) != 1:
            return False
        [leaf], [scan] = leaves, scans
        # The very same rows and columns, or the optimizer has computed something into them.
        if not maker.has_same_rows(scan.rows(), rows.data) or not scan.output().equals(leaf.output()):
            return False
        with maker.quickly():
            rdd = dataset.toArrowBatchRdd(physical)
            partitions = rdd.partitions()
        if len(partitions) != 1 or simple_name(partitions[0]) != "CoalescedRDDPartition":
            return False
        self.rdd, self.partition = rdd, partitions[0]
        return True
