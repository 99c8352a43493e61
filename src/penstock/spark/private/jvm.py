"""Spark's own plans, taken apart and put together over py4j.

The other files of this package speak of plans as `Java` objects and ask here. Each private thing has a reason beside
it, and `tests/plans/test_jvm.py` names the one that moved when a newer Spark has it elsewhere.
A call over py4j costs about 0.1 ms, so what does not change is looked up once per session.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from penstock.spark.private.task import Tasks

Java = Any
"""Something that lives in the JVM: a plan, an expression, an attribute, a Scala collection."""

MARK = "__penstock_stand_in_"
"""Begins the qualifier of every attribute of a stand-in. Copies that Spark makes for a self join keep it."""

_AGGREGATES = "org.apache.spark.sql.catalyst.expressions.aggregate."
_SUBQUERIES = frozenset({"ScalarSubquery", "Exists", "ListQuery", "LateralSubquery"})

_numbers = itertools.count()
_known: WeakKeyDictionary[SparkSession, Catalyst] = WeakKeyDictionary()


def catalyst(spark: SparkSession) -> Catalyst:
    """What a session's plans are made with; looked up once."""
    found = _known.get(spark)
    if found is None:
        found = _known[spark] = Catalyst(spark)
    return found


def analyzed(frame: DataFrame) -> Java:
    """The plan of a frame with every name resolved: what the user's function said, and nothing about how to run it."""
    return frame._jdf.queryExecution().analyzed()


def simple_name(node: Java) -> str:
    """The class of a node or an expression without its package: `Project`, `AttributeReference`."""
    return str(node.getClass().getSimpleName())


class Catalyst:
    """Spark's plans and expressions, made by hand. One for each session; any thread may use it."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._session = spark._jsparkSession
        self.jvm: Java = spark._jvm
        catalyst = self.jvm.org.apache.spark.sql.catalyst
        self.logical = catalyst.plans.logical
        self.expressions = catalyst.expressions
        # Scala's companion objects. Dataset.ofRows is the only way from a plan to a frame; LocalRelation is rows in
        # the driver; ArrowConverters is what createDataFrame uses, less its temporary file and its socket.
        self._datasets = companion(self.jvm.org.apache.spark.sql.classic, "Dataset")
        self._local_relations = companion(self.logical, "LocalRelation")
        self._converters = companion(self.jvm.org.apache.spark.sql.execution.arrow, "ArrowConverters")
        self._iterators = companion(self.jvm.scala.collection, "Iterator")
        self._maps = companion(self.jvm.scala.collection.immutable, "Map")
        self._expr_ids = companion(self.expressions, "NamedExpression")
        self._literals = companion(self.expressions, "Literal")
        self._collections = self.jvm.scala.jdk.javaapi.CollectionConverters
        self.none = getattr(getattr(self.jvm.scala, "None$"), "MODULE$")
        self.nil = self.seq([])
        self._schemas: dict[str, Java] = {}
        self._nulls: dict[str, dict[str, str]] = {}
        self._quick: Java = None

    # --- Scala's collections ---

    def seq(self, items: Iterable[Java]) -> Java:
        """A Scala list."""
        return self._collections.asScala(self._array_list(items)).toList()

    def items(self, seq: Java) -> list[Java]:
        """What is in a Scala sequence."""
        # By number: the end of an iterator is an exception, which takes py4j 50 ms to bring over.
        listed = seq.toList()
        return [listed.apply(place) for place in range(listed.size())]

    def partial_function(self, pairs: Sequence[tuple[Java, Java]]) -> Java:
        """A Scala map; as every map is a partial function, Spark's `transform` takes it for a rule."""
        found = self._maps.empty()
        for key, value in pairs:
            found = found.updated(key, value)
        return found

    def _array_list(self, items: Iterable[Java]) -> Java:
        found = self.jvm.java.util.ArrayList()
        for item in items:
            found.add(item)
        return found

    # --- plans ---

    def frame(self, plan: Java, schema: StructType | None = None) -> DataFrame:
        """A frame of a plan in which every name is resolved already: Spark is told so and looks at it no more.

        `schema` spares a call where it is known.
        """
        plan.setAnalyzed()
        return self._frame(self._datasets.ofRows(self._session, plan), schema)

    def checked_frame(self, plan: Java) -> DataFrame:
        """A frame of a plan made by hand, looked through by Spark's analyzer for what does not fit together."""
        return self._frame(self._datasets.ofRows(self._session, plan))

    def _frame(self, dataset: Java, schema: StructType | None = None) -> DataFrame:
        found = DataFrame(dataset, self._spark)
        if schema is not None:
            vars(found)["schema"] = schema  # Where PySpark itself keeps it, once it has asked.
        return found

    def nodes(self, plan: Java) -> Iterator[Java]:
        """Every node of the plan, the root first; not the ones inside of subqueries."""
        yield plan
        for child in self.items(plan.children()):
            yield from self.nodes(child)

    def all_leaves(self, plan: Java) -> list[Java]:
        """The leaves of the plan and of every subquery in it."""
        inner = self.items(plan.subqueriesAll())
        return [leaf for each in (plan, *inner) for leaf in self.items(each.collectLeaves())]

    def replaced(self, plan: Java, pairs: Sequence[tuple[Java, Java]]) -> Java:
        """The plan with nodes replaced, in subqueries too; what was put in is not looked at again."""
        return plan.transformUpWithSubqueries(self.partial_function(pairs))

    def without_ctes(self, plan: Java) -> Java:
        """The plan with every WITH written out where it is used, by the rule that Spark's optimizer begins with."""
        if not any(simple_name(node) == "WithCTE" for node in self.nodes(plan)):
            return plan
        return self.jvm.org.apache.spark.sql.catalyst.optimizer.InlineCTE(True, False, False).apply(plan)

    def nondeterministic(self, plan: Java) -> Iterator[Java]:
        """The expressions that Spark itself does not call deterministic, without aggregates and what is made of them.

        Spark calls an aggregate nondeterministic if it depends on the order of its rows.
        """
        for whole in (plan, *self.items(plan.subqueriesAll())):
            for node in self.nodes(whole) if not whole.deterministic() else ():
                for expression in self.items(node.expressions()):
                    yield from self._nondeterministic(expression)

    def _nondeterministic(self, expression: Java) -> Iterator[Java]:
        if expression.deterministic():
            return
        children = self.items(expression.children())
        if not all(child.deterministic() for child in children):
            for child in children:
                yield from self._nondeterministic(child)
            return
        is_aggregate = str(expression.getClass().getName()).startswith(_AGGREGATES)
        if not is_aggregate and simple_name(expression) not in _SUBQUERIES:  # Subqueries have plans of their own.
            yield expression

    # --- small plans that run again ---

    @property
    def _quick_session(self) -> Java:
        """A session beside this one for small plans: no second look while they run, no rows computed while planning."""
        if self._quick is None:
            quick = self._session.cloneSession()
            quick.conf().set("spark.sql.adaptive.enabled", "false")
            optimizer = "org.apache.spark.sql.catalyst.optimizer"
            quick.conf().set("spark.sql.optimizer.excludedRules", f"{optimizer}.ConvertToLocalRelation")
            # What reads the answers of small plans expects the types of `arrow_schema`.
            quick.conf().set("spark.sql.execution.arrow.useLargeVarTypes", "false")
            self._quick = quick
        return self._quick

    def quick_dataset(self, plan: Java) -> Java:
        """A dataset of a plan in which every name is resolved, in the session for small plans."""
        return self._datasets.ofRows(self._quick_session, plan)

    @contextmanager
    def quickly(self) -> Iterator[None]:
        """Operators made inside belong to the session for small plans: they ask the thread for it."""
        sessions = companion(self.jvm.org.apache.spark.sql.classic, "SparkSession")
        sessions.setActiveSession(self._quick_session)
        try:
            yield
        finally:
            sessions.setActiveSession(self._session)

    def is_same(self, one: Java, other: Java) -> bool:
        """Whether two references are to one object."""
        identity = self.jvm.java.lang.System.identityHashCode
        return bool(identity(one) == identity(other))

    def has_same_rows(self, one: Java, other: Java) -> bool:
        """Whether two sequences hold the very same rows, not copies of them."""
        if one.size() != other.size():
            return False
        return self.is_same(one.head(), other.head()) and self.is_same(one.last(), other.last())

    def put_rows(self, partition: Java, rows: Java) -> None:
        """Exchanges what is at the bottom of an RDD whose one partition gathers the rows of the driver."""
        getattr(partition, "parents_$eq")(rows)

    def rows_partitions(self, rows: Java) -> Java:
        """Rows of the driver as `put_rows` takes them."""
        return self.nil.prepended(self._rows_partition(0, 0, rows, self._any_class))

    def one_after_the_other(self, rdds: Sequence[Java], mark: bytes, source: Java) -> tuple[Java, Java]:
        """RDDs of bytes as one with one partition, and that: the elements of each, then the mark.

        Each of the RDDs has one partition, and reads this `source` instead.
        """
        context = self._spark.sparkContext._jsc.sc()
        bytes_tag = companion(self.jvm.scala.reflect, "ClassTag").apply(self.jvm.java.lang.Class.forName("[B"))
        marks = context.parallelize(self.seq([mark]), 1, bytes_tag)
        united = context.union(self.seq(each for rdd in rdds for each in (rdd, marks)), bytes_tag)
        for part in list(united.partitions())[::2]:
            getattr(part, "parentPartition_$eq")(source)
        found = self.jvm.org.apache.spark.rdd.CoalescedRDD(united, 1, self.none, bytes_tag)
        return found, found.partitions()[0]

    @cached_property
    def _rows_partition(self) -> Java:
        return self.jvm.org.apache.spark.rdd.ParallelCollectionPartition

    @cached_property
    def _any_class(self) -> Java:
        return companion(self.jvm.scala.reflect, "ClassTag").Any()

    @cached_property
    def tasks(self) -> Tasks:
        """Runs small plans in the driver, with the settings of the session for them."""
        from penstock.spark.private.task import Tasks

        pairs = self.items(self._quick_session.sessionState().conf().getAllConfs().toSeq())
        settings = {pair._1(): pair._2() for pair in pairs if pair._1().startswith("spark.sql")}
        return Tasks(self, self._spark.sparkContext._jsc.sc(), settings)

    # --- leaves ---

    def java_schema(self, schema: StructType) -> Java:
        """The schema as the JVM has it."""
        text = schema.json()
        found = self._schemas.get(text)
        if found is None:
            found = self._schemas[text] = self.jvm.org.apache.spark.sql.types.DataType.fromJson(text)
        return found

    def nulls(self, schema: StructType) -> dict[str, str]:
        """For each column of a schema NULL of its type, as SQL."""
        text = schema.json()
        if text not in self._nulls:
            fields = self.java_schema(schema).fields()
            self._nulls[text] = {each.name(): f"cast(NULL AS {each.dataType().sql()})" for each in fields}
        return self._nulls[text]

    def marked_leaf(self, schema: StructType) -> Java:
        """An empty leaf whose attributes have ids of their own, and a qualifier by which copies of it are known."""
        leaf = self._local_relations.apply(self.java_schema(schema))
        mark = self.seq([f"{MARK}{next(_numbers)}"])
        output = self.seq(attribute.withQualifier(mark) for attribute in self.items(leaf.output()))
        return leaf.copy(output, self.nil, False, self.none)

    def mark_of(self, leaf: Java) -> str | None:
        """The mark of a stand-in or of a copy of one; None for any other leaf."""
        if simple_name(leaf) != "LocalRelation" or leaf.output().isEmpty():
            return None
        qualifier = leaf.output().head().qualifier()
        mark = "" if qualifier.isEmpty() else str(qualifier.head())
        return mark if mark.startswith(MARK) else None

    def local_frame(self, message: bytes, schema: StructType) -> DataFrame:
        """One Arrow record batch, as an IPC message without its schema, as a frame of rows in the driver."""
        batches = self._iterators.single(message)
        rows = self._converters.toDataFrame(batches, self.java_schema(schema), self._session, "UTC", True, False)
        return self._frame(rows, schema)

    def rows_of(self, frame: DataFrame) -> Java:
        """The rows of a frame that is nothing but rows in the driver."""
        return analyzed(frame).data()

    # --- expressions ---

    def new_id(self) -> Java:
        """An attribute id that no other expression has."""
        return self._expr_ids.newExprId()

    def alias(self, expression: Java, name: str, expr_id: Java | None = None) -> Java:
        """The expression under a name."""
        found = expr_id if expr_id is not None else self.new_id()
        return self.expressions.Alias(expression, name, found, self.nil, self.none, self.nil)

    def literal(self, value: int) -> Java:
        """A constant."""
        return self._literals.apply(value)

    def null(self, data_type: Java) -> Java:
        """NULL of a type."""
        return self._literals.create(None, data_type)

    def is_binary_stable(self, data_type: Java) -> bool:
        """Whether values of a type are equal only if their bytes are: a collation may have it otherwise."""
        return bool(self.jvm.org.apache.spark.sql.catalyst.util.UnsafeRowUtils.isBinaryStable(data_type))

    def count(self, argument: Java, like: Java | None = None) -> Java:
        """count(argument), over the same rows as another aggregate where that has a FILTER."""
        counting = self.expressions.aggregate.Count(self.seq([argument]))
        found = counting.toAggregateExpression()
        if like is None:
            return found
        return like.copy(counting, like.mode(), like.isDistinct(), like.filter(), found.resultId())

    def project(self, columns: Iterable[Java], child: Java) -> Java:
        """SELECT columns FROM child."""
        return self.logical.Project(self.seq(columns), child)

    def in_one_task(self, plan: Java) -> Java:
        """`coalesce(1)`: rows in one partition need no exchange before an aggregation."""
        return self.logical.Repartition(1, False, plan)


def companion(package: Java, name: str) -> Java:
    """The Scala object beside a class."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")
