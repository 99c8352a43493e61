"""A short text that changes when the answers of a view could: its plan, the code of its UDFs, what its definition says.

The same in every process and every run: ids that Spark counts up are numbered anew, sets sorted, addresses left out.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from penstock.plans.building import is_library
from penstock.plans.decision import Input
from penstock.plans.tree import Node
from penstock.plans.whitelist import LEAVES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.pipeline.definition import ViewSpec

_UDFS = {"PythonUDF", "PythonUDAF", "PythonUDTF"}
_ADDRESS = re.compile(r"\b0x[0-9a-f]{4,}|@[0-9a-f]{5,}\b")
_LAMBDA_VARIABLE = re.compile(r"\blambda [xyz]_\d+(?=#)")
"""PySpark names the parameters of a lambda by itself, and counts them up through the whole process."""


def fingerprint(spec: ViewSpec, inputs: Mapping[str, Input], frame: DataFrame, plan: Node, text: str) -> str:
    """32 hexadecimal digits."""
    said = {
        "plan": canonical(text),
        "schema": frame.schema.jsonValue(),
        "inputs": {
            name: [each.kind, each.schema.jsonValue(), str(each.lateness), each.event_time, each.key]
            for name, each in sorted(inputs.items())
        },
        "key": spec.key,
        "merge": dict(sorted(spec.merge.items())),
        "within": dict(sorted(spec.within.items())),
        "late": spec.late,
        "horizon": str(spec.horizon),
        "kept": spec.kept,
        "code": list(_code(spec, frame, plan)),
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:32]


def canonical(text: str) -> str:
    """The text of a plan with its expression ids counted from 0 in the order in which they appear."""
    numbers: dict[str, int] = {}
    text = _LAMBDA_VARIABLE.sub("lambda ", text)
    text = re.sub(r"(CTERelation(?:Def|Ref)) (\d+)", r"\1 #\2", text)
    renumbered = re.sub(r"#(\d+)L?", lambda found: f"#{numbers.setdefault(found[1], len(numbers))}", text)
    return _ADDRESS.sub("", renumbered)


def code_of(value: Any, known: frozenset[int] = frozenset()) -> str:
    """What a function does, as text: its code, constants, defaults and closure, and the same of what it calls."""
    if id(value) in known:
        return "again"
    known |= {id(value)}
    if isinstance(value, FunctionType):
        if is_library(value.__code__.co_filename):
            return f"{value.__module__}.{value.__qualname__}"
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        parts = [value.__code__, value.__defaults__, value.__kwdefaults__, cells, _globals(value)]
        return f"function({', '.join(code_of(part, known) for part in parts)})"
    if isinstance(value, CodeType):
        names = (value.co_names, value.co_varnames, value.co_freevars)
        return f"code({value.co_code.hex()}, {code_of(value.co_consts, known)}, {names})"
    if isinstance(value, (set, frozenset)):
        return f"set({sorted(code_of(each, known) for each in value)})"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(code_of(each, known) for each in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{code_of(k, known)}: {code_of(v, known)}' for k, v in value.items())}}}"
    if isinstance(value, (ModuleType, BuiltinFunctionType)):
        return value.__name__
    if isinstance(value, type):
        members = {} if _is_of_library(value) else {k: v for k, v in vars(value).items() if isinstance(v, FunctionType)}
        return f"class {value.__module__}.{value.__qualname__} {code_of(members, known)}"
    if hasattr(value, "__dict__"):
        return f"{type(value).__qualname__} {code_of(vars(value), known)}"
    return _ADDRESS.sub("", repr(value))


def _globals(function: FunctionType) -> dict[str, Any]:
    """The globals that a function names, those of the functions inside it included."""
    names = sorted(set(_names(function.__code__)))
    return {name: function.__globals__[name] for name in names if name in function.__globals__}


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_of_library(value: type) -> bool:
    methods = [each for each in vars(value).values() if isinstance(each, FunctionType)]
    return not methods or is_library(methods[0].__code__.co_filename)


def _code(spec: ViewSpec, frame: DataFrame, plan: Node) -> Iterator[str]:
    """The code of each Python function in the plan; and of the view's own, where it wrote rows that the plan hides."""
    expressions = [each for node in plan.everywhere() for whole in node.expressions() for each in whole.walk()]
    if any(each.kind in _UDFS for each in expressions):
        for command in _commands(frame):
            yield _unpickled(command)
    if spec.function is not None and any(node.kind in LEAVES - {"OneRowRelation"} for node in plan.everywhere()):
        yield code_of(spec.function)


def functions_of(frame: DataFrame) -> Iterator[Any]:
    """The Python functions of a frame's plan, as far as they can be loaded again."""
    for command in _commands(frame):
        try:
            yield _function(command)
        except Exception:
            continue


def _unpickled(command: bytes) -> str:
    try:
        return code_of(_function(command))
    except Exception:  # What a user's function pickles into may need anything to be loaded again.
        return hashlib.sha256(command).hexdigest()


def _function(command: bytes) -> Any:
    from pyspark.serializers import CloudPickleSerializer

    pickles: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]
    return pickles.loads(command)[0]


def _commands(frame: DataFrame) -> Iterator[bytes]:
    """The pickled Python functions of a plan, in its order."""
    bytes_tag = frame.sparkSession._jvm.scala.reflect.ClassTag.Byte()  # type: ignore[union-attr]
    waiting = [frame._jdf.queryExecution().analyzed()]
    while waiting:
        found = waiting.pop()
        if found.getClass().getSimpleName() in _UDFS:
            yield bytes(found.func().command().toArray(bytes_tag))
        parts = [found.children()]
        if hasattr(found, "expressions") and "plans" in found.getClass().getName():
            parts.insert(0, found.expressions())
        inner = [part.apply(number) for part in parts for number in range(part.size())]
        if found.getClass().getSimpleName() in ("ScalarSubquery", "Exists", "ListQuery", "LateralSubquery"):
            inner.append(found.plan())
        waiting.extend(reversed(inner))
