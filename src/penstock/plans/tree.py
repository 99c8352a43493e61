"""Spark's analyzed plan as plain Python: nodes and expressions by the names of their Catalyst classes.

It is read from `toJSON`. What the JSON leaves out is found elsewhere: time and session windows by their shape
(`windows.py`), `try_sum` and the values of a pivot by the plan's text (`text_of`), the code of Python functions by
`PlanAnalysis.python_functions`. Subqueries stand inside expressions and have plans of their own: `Expression.plan`.

**How an input is recognised.** Each input of a view is handed to the user's function under an alias that nobody else
would use (`marked`). The alias is a node of the plan and stays above the leaf wherever that goes: into a self join, of
which Spark gives one side new attribute ids, into a temporary view, into a subquery. So a node `SubqueryAlias` of that
name is the input, whatever stands below it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.spark.private.analysis import plan_analysis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MARK = "__penstock_input_"


@dataclass(frozen=True, eq=False)
class Expression:
    """One expression of a plan. `kind` is the class's own name, such as `EqualTo`."""

    kind: str
    children: tuple[Expression, ...]
    fields: Mapping[str, Any] = field(repr=False)
    """What the JSON has beside the children."""
    plan: Node | None = field(default=None, repr=False)
    """The plan of a subquery."""

    @property
    def id(self) -> int | None:
        """The expression id of an attribute or alias: by it a column is followed through the plan."""
        found = self.fields.get("exprId")
        return found["id"] if isinstance(found, dict) else None

    @property
    def name(self) -> str:
        """The name of an attribute, alias, function or struct field; empty where it has none."""
        return str(self.fields.get("name") or "")

    @property
    def is_attribute(self) -> bool:
        return self.kind == "AttributeReference"

    def walk(self) -> Iterator[Expression]:
        """Itself and everything below it, subqueries' plans left out."""
        yield self
        for child in self.children:
            yield from child.walk()

    def attributes(self) -> Iterator[Expression]:
        """The attributes it refers to, also from inside its subqueries: those of the outer plan."""
        for each in self.walk():
            if each.is_attribute:
                yield each


@dataclass(frozen=True, eq=False)
class Node:
    """One node of a plan. `kind` is the class's own name, such as `Aggregate`."""

    kind: str
    children: tuple[Node, ...]
    fields: Mapping[str, Any] = field(repr=False)
    """What the JSON has, with expressions parsed: always lists of Expression, for Expand lists of lists."""

    @property
    def child(self) -> Node:
        return self.children[0]

    @property
    def input(self) -> str | None:
        """The bound name of the input that this node stands for; None for all others."""
        if self.kind != "SubqueryAlias":
            return None
        name = str(self.fields["identifier"]["name"])
        return name[len(_MARK) :] if name.startswith(_MARK) else None

    def walk(self) -> Iterator[Node]:
        """Itself and the nodes below it. Inputs are leaves; subqueries are left out."""
        yield self
        if self.input is None:
            for child in self.children:
                yield from child.walk()

    def everywhere(self) -> Iterator[Node]:
        """As `walk`, and the plans of subqueries too."""
        for node in self.walk():
            yield node
            for expression in node.expressions():
                for each in expression.walk():
                    if each.plan is not None:
                        yield from each.plan.everywhere()

    def listed(self, name: str) -> list[Expression]:
        """The expressions of one field."""
        return [each for each in self.fields.get(name) or [] if isinstance(each, Expression)]

    def expressions(self) -> Iterator[Expression]:
        """All expressions that stand at this node. An input has none."""
        if self.input is None:
            for name, value in self.fields.items():
                if name not in ("output", "generatorOutput"):
                    yield from _flat(value)

    def outputs(self) -> list[tuple[int, str]]:
        """The id and the name of each column that it gives, in order."""
        if self.kind in ("Project", "Aggregate"):
            named = self.listed("projectList" if self.kind == "Project" else "aggregateExpressions")
            return [(each.id or 0, each.name) for each in named]
        if self.input is None and self.listed("output"):
            return [(each.id or 0, each.name) for each in self.listed("output")]
        if self.kind == "Join":
            left = self.children[0].outputs()
            is_half = join_type(self) in ("LeftSemi", "LeftAnti")
            return left if is_half else [*left, *self.children[1].outputs()]
        if self.kind == "LateralJoin":
            inner = next((each.plan for each in self.expressions() if each.plan is not None), None)
            return [*self.child.outputs(), *(inner.outputs() if inner else [])]
        if self.kind in ("Window", "Generate"):
            added = self.listed("windowExpressions" if self.kind == "Window" else "generatorOutput")
            return [*self.child.outputs(), *((each.id or 0, each.name) for each in added)]
        return self.children[0].outputs() if self.children else []


def plan_of(frame: DataFrame) -> Node:
    """The analyzed plan of a frame."""
    text = plan_analysis.json(frame)
    plan = _node(iter(json.loads(text)))
    return _with_inlined(plan, {}) if ".WithCTE" in text else plan


def text_of(frame: DataFrame) -> str:
    """The analyzed plan as Spark prints it, with nothing cut short."""
    return plan_analysis.text(frame)


def marked(name: str, frame: DataFrame) -> DataFrame:
    """The frame as input `name`, which can be recognised in every plan that is built on it."""
    return frame.alias(_MARK + name)


def join_type(node: Node) -> str:
    """`Inner`, `Cross`, `LeftOuter`, `RightOuter`, `FullOuter`, `LeftSemi`, `LeftAnti`, `ExistenceJoin`."""
    found = node.fields["joinType"]
    name = found.get("object") or found.get("product-class") or ""
    return str(name).rpartition(".")[2].rstrip("$")


def conjuncts(condition: Expression | None) -> Iterator[Expression]:
    """The parts of a condition that must all hold."""
    if condition is None:
        return
    if condition.kind == "And":
        for child in condition.children:
            yield from conjuncts(child)
    else:
        yield condition


def unaliased(expression: Expression) -> Expression:
    """What is named by an alias; anything else as it is."""
    return expression.children[0] if expression.kind == "Alias" else expression


def same(one: Expression, other: Expression) -> bool:
    """Whether both say the same of the same attributes."""
    if one.kind != other.kind or len(one.children) != len(other.children):
        return False
    if one.is_attribute:
        return one.id == other.id
    plain = [{k: v for k, v in each.fields.items() if k not in _IGNORED} for each in (one, other)]
    return (
        plain[0] == plain[1]
        and one.plan is None
        and other.plan is None
        and all(map(same, one.children, other.children))
    )


_IGNORED = {"exprId", "resultId", "qualifier", "branches", "elseValue", "filter", "metadata"}


def _flat(value: Any) -> Iterator[Expression]:
    if isinstance(value, Expression):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _flat(each)


def _with_inlined(node: Node, definitions: dict[int, Node]) -> Node:
    """The plan with `WITH name AS (...)` written out wherever the name stands, as Spark does when it optimizes."""
    if node.kind == "WithCTE":
        for each in node.children[:-1]:
            definitions = {**definitions, each.fields["id"]: _with_inlined(each.child, definitions)}
        return _with_inlined(node.children[-1], definitions)
    if node.kind == "CTERelationRef" and node.fields["cteId"] in definitions:
        child = definitions[node.fields["cteId"]]
        renamed = [
            each if each.id == number else Expression("Alias", (_attribute(number, name),), each.fields)
            for each, (number, name) in zip(node.listed("output"), child.outputs(), strict=True)
        ]
        return Node("Project", (child,), {"projectList": renamed})
    children = tuple(_with_inlined(child, definitions) for child in node.children)
    fields = {name: _inlined_inside(value, definitions) for name, value in node.fields.items()}
    return Node(node.kind, children, fields)


def _inlined_inside(value: Any, definitions: dict[int, Node]) -> Any:
    if isinstance(value, list):
        return [_inlined_inside(each, definitions) for each in value]
    if not isinstance(value, Expression):
        return value
    children = tuple(_inlined_inside(child, definitions) for child in value.children)
    plan = _with_inlined(value.plan, definitions) if value.plan is not None else None
    return Expression(value.kind, children, value.fields, plan)


def _attribute(number: int, name: str) -> Expression:
    return Expression("AttributeReference", (), {"name": name, "exprId": {"id": number}})


def _node(rest: Iterator[dict[str, Any]]) -> Node:
    """The next node of a list in preorder, with as many children after it as it says."""
    found = next(rest)
    children = tuple(_node(rest) for _ in range(found["num-children"]))
    fields = {name: _parsed(value) for name, value in found.items() if name not in ("class", "num-children")}
    return Node(_short(found["class"]), children, fields)


def _expression(rest: Iterator[dict[str, Any]]) -> Expression:
    found = next(rest)
    children = tuple(_expression(rest) for _ in range(found["num-children"]))
    kind = _short(found["class"])
    fields = {name: value for name, value in found.items() if name not in ("class", "num-children")}
    if kind == "OuterReference":
        return Expression(kind, (_expression(iter(fields.pop("e"))),), fields)
    plan = fields.pop("plan", None)
    return Expression(kind, children, fields, _node(iter(plan)) if plan else None)


def _parsed(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    if _is_tree(value):
        return [_expression(iter(value))]
    if all(isinstance(each, list) and _is_tree(each) for each in value):
        return [_expression(iter(each)) for each in value]
    return [_parsed(each) for each in value]


def _is_tree(value: Sequence[Any]) -> bool:
    return bool(value) and isinstance(value[0], dict) and "num-children" in value[0]


def _short(name: str) -> str:
    return name.rpartition(".")[2].rstrip("$")
