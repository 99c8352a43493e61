"""Does a function remember? Finds where it changes something that outlives the call: a counter, a cache, a set.

It reads the source and runs nothing. What lasts is a global, a variable of an outer function, the default of a
parameter, and the object that a method belongs to, but for where that is made.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from functools import lru_cache
from types import FunctionType, ModuleType
from typing import Any

from penstock.pipeline.place import Place
from penstock.plans.building import place_of_line

_CHANGING = {
    *("add", "append", "appendleft", "clear", "discard", "extend", "insert"),
    *("pop", "popitem", "popleft", "remove", "setdefault", "subtract", "update"),
}
"""Methods that change a container."""
_MAKING = {"__init__", "__new__", "__post_init__", "__setstate__"}

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def remembered(function: FunctionType) -> Iterator[tuple[str, Place]]:
    """The names of what a function changes and a later call finds, each with its line."""
    lasting = _lasting(function)
    if not lasting:
        return
    for node in _source_of(function):
        for each in ast.walk(node):
            name = _changed(each, lasting)
            if name is not None:
                yield name, place_of_line(function.__code__.co_filename, each.lineno)  # type: ignore[attr-defined]


def _lasting(function: FunctionType) -> dict[str, Any]:
    """What the function uses that outlives a call, by name."""
    code = function.__code__
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    found = {name: function.__globals__[name] for name in code.co_names if name in function.__globals__}
    found |= dict.fromkeys(code.co_freevars)
    defaults = function.__defaults__ or ()
    by_name = dict(zip(code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount], defaults, strict=True))
    by_name |= function.__kwdefaults__ or {}
    found |= {name: value for name, value in by_name.items() if isinstance(value, (list, dict, set))}
    is_method = "." in function.__qualname__.rpartition("<locals>.")[2] and function.__name__ not in _MAKING
    if is_method and parameters:
        found[parameters[0]] = None
    return found


def _changed(node: ast.AST, lasting: dict[str, Any]) -> str | None:
    """The name of what this changes, if that lasts."""
    if isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, (ast.Store, ast.Del)):
        name = _root(node.value)
    elif isinstance(node, (ast.Global, ast.Nonlocal)):
        name = node.names[0]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGING:
        name = _root(node.func.value)
        if isinstance(node.func.value, ast.Name) and isinstance(lasting.get(name or ""), ModuleType):
            return None  # A function of a module that is called like that.
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "next" and node.args:
        name = _root(node.args[0])
    else:
        return None
    return name if name in lasting else None


def _root(node: ast.expr) -> str | None:
    """The name that a chain of attributes and subscripts begins with."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _source_of(function: FunctionType) -> Iterator[_Function]:
    """The nodes of the source that may be the function: of several lambdas in one line all are."""
    code = function.__code__
    text = "".join(linecache.getlines(code.co_filename))
    for node in ast.walk(_parsed(text)):
        if isinstance(node, ast.Lambda):
            if code.co_name == "<lambda>" and node.lineno == code.co_firstlineno:
                yield node
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == code.co_name:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            if first == code.co_firstlineno:
                yield node


@lru_cache(maxsize=16)
def _parsed(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError:
        return ast.Module([], [])
