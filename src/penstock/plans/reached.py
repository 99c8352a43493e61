"""What Python code can reach: the functions, classes, constants, modules and libraries that its answers depend on.

Each is a part with a name that its author knows, and a short text that changes when it does: a digest, or the version
of a library. A part does not count what has a part of its own, so a change is found in the part that changed.

Of a user's module that is reached, the whole source counts, since it may look things up by name; of what its functions
refer to, also the values. Of a library only the version counts. The texts are the same in every process: sets and
dictionaries are sorted, addresses left out, and comments and line numbers are not read. An object that cannot be looked
into counts as its class.
"""

from __future__ import annotations

import copyreg
import dis
import functools
import hashlib
import importlib.util
import marshal
import os
import sys
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

from penstock.plans.building import is_library
from penstock.plans.versions import version_of

_PLAIN = {int, float, complex, bool, str, bytes, type(None), type(...)}
_SORTABLE = ({int}, {str}, {bytes})
_MARSHAL = 2
"""The last version that writes equal values alike, whether or not they are the same object."""
_LEVELS = 1_000
"""What lies deeper counts as its class: in every process the same, whatever its stack has room for."""
_FRAMES = 20_000
"""Enough for that."""
_OPAQUE = {"penstock", "py4j", "pydantic_core"}
"""Objects of these describe pipelines, reach into the JVM, and follow from models; only their class counts."""
_FLEETING = (type(os.environ), weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet)
"""What they hold is that of one process: its environment, what it has called so far."""
_BY_NAME = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
"""How globals are read: in functions, and in the bodies of classes inside them."""
_LOOK_UP = {"globals", "eval", "exec", "__import__"}
_LOOK_UP_BY = {"__globals__", "modules", "import_module"}
"""A function that uses one of these, as globals or as attributes, may read anything of the file of the views."""
_LOOK_INTO = {"getattr", "vars", "__dict__", "attrgetter"}
"""So may one that uses these, if it has that file's module."""
_UNTOLD = {"__module__", "__dict__", "__weakref__", "__doc__", "__annotations__", "__firstlineno__", "__slotnames__",
           "__static_attributes__", "__orig_bases__", "__parameters__", "__annotate__",
           "__pydantic_core_schema__", "__pydantic_validator__", "__pydantic_serializer__"}  # fmt: skip
"""What Python notes in a class of its own accord, and what pydantic makes of its fields."""


def reached(roots: Iterable[Any], own_file: str) -> dict[str, str]:
    """The parts of these functions, or other things that can be called, in the order in which they are given.

    Of `own_file`, which defines views, only what is referred to counts, so that each view changes by itself. Where
    names are looked up in it by text, such as `globals()["RATE"]`, its whole source counts.
    """
    walk = _Walk(own_file)
    with _deep():
        for root in roots:
            digest = walk.value(root)
            if not isinstance(root, FunctionType):
                owner = root.__self__ if isinstance(root, MethodType) else root
                walk.note(f"{_kind_of(owner)} object", digest)
    return walk.parts()


def users_functions(roots: Iterable[Any]) -> list[FunctionType]:
    """The user's own functions among all that these reach, callers before what they call."""
    walk = _Walk("")
    with _deep():
        for root in roots:
            walk.value(root)
    return walk.functions


class _Walk:
    """Goes through everything once. What it was told stays alive, so that no id is used twice."""

    def __init__(self, own_file: str) -> None:
        self._own_file = os.path.realpath(own_file)
        self._known: dict[int, tuple[Any, bytes]] = {}
        self._attributes: set[tuple[int, frozenset[str]]] = set()
        self._notes: dict[str, list[bytes]] = {}
        self._level = 0
        self.functions: list[FunctionType] = []
        self._versions: dict[str, str] = {}

    def parts(self) -> dict[str, str]:
        named = {
            name if number == 0 else f"{name} ({number + 1})": f"#{digest.hex()[:16]}"
            for name, digests in self._notes.items()
            for number, digest in enumerate(digests)
        }
        return dict(sorted({**named, **self._versions}.items()))

    def note(self, name: str, digest: bytes) -> bytes:
        """Makes a part. Others of the same name are numbered. What is returned stands for it in those that use it."""
        known = self._notes.setdefault(name, [])
        if digest not in known:
            known.append(digest)
        return _hash(name, known.index(digest))

    def value(self, value: Any) -> bytes:
        """A digest of any object. Never fails: what cannot be looked into counts as its class."""
        if type(value) in _PLAIN:
            if type(value) is str and self._has_address(value):
                value = value.rpartition(":")[0]
            return _hash(type(value).__name__, marshal.dumps(value, _MARSHAL))
        known = self._known.get(id(value))
        if known is not None:
            return known[1]
        self._known[id(value)] = value, _hash("itself")
        self._level += 1
        try:
            found = self._digest(value) if self._level <= _LEVELS else _hash("too deep", _kind_of(value))
        except Exception:  # Objects of users and libraries may raise anything.
            found = _hash("unreadable", _kind_of(value))
        self._level -= 1
        self._known[id(value)] = value, found
        return found

    def _has_address(self, text: str) -> bool:
        """Whether it is how pydantic names a class that we have seen: `module.Model:94868968599392`."""
        tail = text.rpartition(":")[2]
        is_number = 0 < len(tail) < 20 and tail.isascii() and tail.isdecimal()
        return is_number and isinstance(self._known.get(int(tail), (None,))[0], type)

    def _digest(self, value: Any) -> bytes:
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, ModuleType):
            return self._module(value, frozenset())
        if isinstance(value, CodeType):
            return self._code(value)
        if isinstance(value, MappingProxyType):
            value = dict(value)
        if type(value) in (list, tuple):
            if _is_plain(value):
                return _hash("row", marshal.dumps(list(value), _MARSHAL))
            return _hash("row", *map(self.value, value))
        if type(value) is dict:
            if set(map(type, value)) in _SORTABLE and _is_plain(value.values()):
                return _hash("table", marshal.dumps(sorted(value.items()), _MARSHAL))
            return _hash("table", *sorted(self.value(key) + self.value(each) for key, each in value.items()))
        if isinstance(value, (set, frozenset)):
            if set(map(type, value)) in _SORTABLE:
                return _hash("set", marshal.dumps(sorted(value), _MARSHAL))
            # In an order of its own, since same names are numbered as they come.
            members = sorted(map(self.value, sorted(value, key=lambda each: getattr(each, "__qualname__", ""))))
            return _hash("set", self.value(type(value)), *members)
        return self._object(value)

    # --- functions ---

    def _function(self, function: FunctionType) -> bytes:
        code, names = function.__code__, _Names.of(function.__code__)
        variables = dict(_variables(function))
        if is_library(code.co_filename):
            self._library(str(function.__globals__.get("__name__")))
            # A decorator of a library: what it decorates may be the user's.
            inner = [getattr(function, "__wrapped__", None), *variables.values()]
            return _hash("library", function.__module__ or "", function.__qualname__, *map(self.value, inner))
        where = _in(code.co_filename)
        name = f"function {_written(function.__qualname__)}"
        self._known[id(function)] = function, _hash(name + where, 0)
        self.functions.append(function)
        self._source(code.co_filename)
        if names.globals & _LOOK_UP or names.all & _LOOK_UP_BY:
            self._note_source(self._own_file)
        for each in names.imports:
            self._import(each, function.__globals__, names.all)
        known = function.__globals__
        parts = [self._code(code), *map(self.value, (function.__defaults__, function.__kwdefaults__, vars(function)))]
        parts += [
            self._bound(f"constant {each}{where}", known[each], names.all)
            for each in sorted(names.globals)
            if each in known and not each.startswith("__")
        ]
        parts += [
            self._bound(f"variable {each} of {name}{where}", found, names.all) for each, found in variables.items()
        ]
        return self.note(name + where, _hash(*parts))

    def _bound(self, name: str, value: Any, names: frozenset[str]) -> bytes:
        """What a name stands for: a thing with a part of its own, or a value, which gets one."""
        if isinstance(value, ModuleType):
            return self._module(value, names)
        found = self.value(value)
        is_named = isinstance(value, (FunctionType, type))
        return found if is_named else self.note(name, found)

    def _code(self, code: CodeType) -> bytes:
        numbers = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        return _hash(
            "code",
            code.co_code,
            getattr(code, "co_exceptiontable", b""),
            repr((numbers, names)),
            *map(self.value, code.co_consts),
        )

    # --- modules and libraries ---

    def _module(self, module: ModuleType, names: frozenset[str]) -> bytes:
        """A module, and what it has under these names: all that can be written behind its own with a dot."""
        found = _hash("module", module.__name__)
        if _is_library_module(module):
            self._library(module.__name__)
        elif (id(module), names) not in self._attributes:
            self._attributes.add((id(module), names))
            self._known[id(module)] = module, found
            file = getattr(module, "__file__", None) or ""
            self._source(file)
            if names & _LOOK_INTO and os.path.realpath(file) == self._own_file:
                self._note_source(file)
            has = vars(module)
            for each in sorted(name for name in names & set(has) if not name.startswith("__")):
                self._bound(f"constant {each}{_in(file)}", has[each], names)
        return found

    def _import(self, wanted: _Import, namespace: dict[str, Any], names: frozenset[str]) -> None:
        """What an import inside a function brings. Only the user's own modules are really imported."""
        top = wanted.name.partition(".")[0]
        try:
            if not wanted.level and not _is_users(top):
                self._library(top)
                return
            module = __import__(wanted.name, namespace, None, wanted.names, wanted.level)
        except Exception:  # There may be no such module here, or it may raise anything.
            self._versions[f"module {wanted.name}"] = "cannot be imported"
        else:
            self._module(module, names)

    def _source(self, file: str) -> None:
        """The whole source of a user's module counts."""
        if not is_library(file) and os.path.realpath(file) != self._own_file:
            self._note_source(file)

    def _note_source(self, file: str) -> None:
        try:
            changed = os.stat(file)
            code = _compiled(file, changed.st_mtime_ns, changed.st_size)
        except (OSError, SyntaxError, ValueError):
            return  # What was typed into a shell has no file.
        self.note(f"module {os.path.basename(file)}", self.value(code))

    def _library(self, module: str) -> None:
        top = module.partition(".")[0]
        if top and top not in sys.stdlib_module_names and top not in ("pyspark", "py4j"):  # Those have Spark's version.
            self._versions[f"library {top}"] = version_of(top)

    # --- classes and other objects ---

    def _class(self, kind: type) -> bytes:
        module = sys.modules.get(kind.__module__)
        is_made = "<locals>" in kind.__qualname__
        if module is not None and kind.__module__ != "__main__" and _is_library_module(module) and not is_made:
            self._library(kind.__module__)
            return _hash("class", kind.__module__, kind.__qualname__)
        file = getattr(module, "__file__", None) or ""
        name = f"class {_written(kind.__qualname__)}{_in(file)}"
        self._known[id(kind)] = kind, _hash(name, 0)
        self._source(file)
        members = {each: value for each, value in sorted(vars(kind).items()) if each not in _UNTOLD}
        digests = [_hash(each) + self._member(value) for each, value in members.items()]
        return self.note(name, _hash(self.value(type(kind)), *map(self.value, kind.__bases__), *digests))

    def _member(self, value: Any) -> bytes:
        if isinstance(value, (staticmethod, classmethod)):
            return _hash(type(value).__name__, self.value(value.__func__))
        if isinstance(value, property):
            return _hash("property", *map(self.value, (value.fget, value.fset, value.fdel)))
        return self.value(value)

    def _object(self, value: Any) -> bytes:
        """Any other object, taken apart as for pickling: so it reaches the workers."""
        from pyspark import cloudpickle
        from pyspark.core.broadcast import Broadcast

        if isinstance(value, _FLEETING):
            return self.value(type(value))
        if isinstance(value, Broadcast):
            return self.value(value.value)
        kind = type(value)
        about = self.value(kind)
        top = kind.__module__.partition(".")[0]
        module = sys.modules.get(kind.__module__)
        is_stdlib = top in sys.stdlib_module_names
        if not is_stdlib and module is not None and _is_library_module(module):
            if top in _OPAQUE:
                return about
            # A connection or a client, which does not travel, is full of what each process has by chance.
            cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
        wrapped = getattr(value, "__wrapped__", None) if is_stdlib else None
        try:
            taken = _taken_apart(value)
        except Exception:
            if is_stdlib or not hasattr(value, "__dict__"):
                raise
            return _hash("object", about, self.value(_without_caches(kind, vars(value))))
        if isinstance(taken, str):
            home = sys.modules.get(getattr(value, "__module__", None) or "")
            named = b"" if home is None else self._module(home, frozenset())
            return _hash("global", about, named, taken, self.value(wrapped))
        function, arguments, state, items, pairs = [*taken, None, None, None][:5]
        parts = (function, arguments, _without_caches(kind, state), items and list(items), pairs and dict(pairs))
        return _hash("object", about, *map(self.value, parts))


class _Import:
    """An import statement inside a function."""

    def __init__(self, name: str, names: tuple[str, ...], level: int) -> None:
        self.name = name
        self.names = names
        self.level = level


class _Names:
    """The names that a function's code uses, with those of the functions inside it."""

    def __init__(self) -> None:
        self.globals: set[str] = set()
        self.imports: list[_Import] = []
        self.all: frozenset[str] = frozenset()

    @classmethod
    def of(cls, code: CodeType) -> _Names:
        found = cls()
        found._read(code)
        return found

    def _read(self, code: CodeType) -> None:
        self.all |= frozenset(code.co_names)
        before: list[Any] = [None, None]
        for each in dis.get_instructions(code):
            if each.opname in _BY_NAME:
                self.globals.add(each.argval)
            elif each.opname == "IMPORT_NAME":
                self.imports.append(_Import(each.argval, before[1] or (), before[0] or 0))
            if each.opname != "EXTENDED_ARG":
                before = [before[1], each.argval]
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self._read(constant)


def _variables(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """The variables of functions around this one that it uses."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:  # Not set yet.
            continue


def _taken_apart(value: Any) -> Any:
    """As pickle takes it apart: a name, or up to six things to make it of."""
    reducer = copyreg.dispatch_table.get(type(value))
    return value.__reduce_ex__(4) if reducer is None else reducer(value)


def _without_caches(kind: type, state: Any) -> Any:
    """The state of an object without what a `cached_property` keeps there: it follows from the rest."""
    cached = {
        name
        for each in kind.__mro__
        for name, member in vars(each).items()
        if isinstance(member, functools.cached_property)
    }
    if isinstance(state, tuple) and len(state) == 2:  # With slots.
        return _without_caches(kind, state[0]), state[1]
    if type(state) is not dict or not cached:
        return state
    return {name: value for name, value in state.items() if name not in cached} or None


def _is_plain(values: Iterable[Any]) -> bool:
    return set(map(type, values)) <= _PLAIN


def _is_library_module(module: ModuleType) -> bool:
    if module.__name__.partition(".")[0] in sys.stdlib_module_names:
        return True
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
    return file is not None and is_library(file)


def _is_users(top: str) -> bool:
    """Whether a module that may not be imported yet is the user's own. ImportError if it is nowhere."""
    if top in sys.stdlib_module_names:
        return False
    if top in sys.modules:
        return not _is_library_module(sys.modules[top])
    spec = importlib.util.find_spec(top)
    if spec is None:
        raise ImportError(top)
    file = spec.origin or next(iter(spec.submodule_search_locations or ()), "")
    return not is_library(file)


@lru_cache(maxsize=256)
def _compiled(file: str, _mtime_ns: int, _size: int) -> CodeType | bytes:
    with open(file, "rb") as source:
        text = source.read()
    return compile(text, os.path.basename(file), "exec", dont_inherit=True) if file.endswith(".py") else text


def _kind_of(value: Any) -> str:
    """Without its module, which for one and the same class is `__main__` or the file's name."""
    return _written(type(value).__qualname__)


def _written(qualname: str) -> str:
    return qualname.replace(".<locals>", "")


def _in(file: str) -> str:
    """Where something is, by the file's own name: folders differ from machine to machine."""
    return f" in {os.path.basename(file)}" if os.path.isfile(file) else ""


def _hash(*parts: str | bytes | int) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        content = part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogatepass")
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.digest()


@contextmanager
def _deep() -> Iterator[None]:
    """Functions that call one another, and nested values, may go deep."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _FRAMES))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
