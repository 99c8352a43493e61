"""What Python code reaches: whatever its answers depend on counts, under a name, and nothing else does."""

from __future__ import annotations

import functools
import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pydantic
import pytest

from penstock.modes.changed import differences
from penstock.plans.reached import reached
from tests.conftest import ROOT

pytestmark = pytest.mark.spark

RULES = """
import functools
import threading

LIMIT = 3
RATES = {"DE": 19, "FR": 20}
LOCK = threading.Lock()


def f(x):
    return g(x) + LIMIT


def g(x):
    return x * 2


def by_name(x):
    return globals()["un" + "named"](x)


def unnamed(x):
    return x


def guarded(x):
    with LOCK:
        return RATES.get(x)


@functools.lru_cache
def cached(x):
    return g(x)


class Base:
    def base(self, x):
        return x


class Rule(Base):
    FACTOR = 7

    def __init__(self, n):
        self.n = n
        self.lock = threading.Lock()

    def apply(self, x):
        return self.base(x) * self.n * self.FACTOR

    def __call__(self, x):
        return self.apply(x)

    @staticmethod
    def static(x):
        return x + 1

    @property
    def shown(self):
        return self.n


rule = Rule(5)
"""
APP = """
import functools

import rules
from rules import Rule, rule

by_module = lambda x: rules.f(x)
by_lookup = lambda x: rules.by_name(x)
by_instance = lambda x: rule.apply(x)
by_cache = lambda x: rules.cached(x)
with_lock = lambda x: rules.guarded(x)
partial = functools.partial(rules.f)
instance = Rule(2)
bound = rule.apply


def inside(x):
    from rules import f

    return f(x)


def beside(x):
    return 1


RATE = 5


def by_globals(x):
    return globals()["RA" + "TE"] * x


def by_eval(x):
    return eval("RA" + "TE") * x


def by_module_of_itself(x):
    import sys

    return getattr(sys.modules[__name__], "RA" + "TE") * x


def by_import_of_itself(x):
    import app

    return vars(app)["RA" + "TE"] * x


def by_getattr_of_a_value(x):
    return getattr(x, "real", None)
"""


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str]]:
    """The parts of one name of app.py, over these sources, imported anew."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def found(name: str, rules: str = RULES, app: str = APP) -> dict[str, str]:
        (tmp_path / "rules.py").write_text(rules, encoding="utf-8")
        (tmp_path / "app.py").write_text(app, encoding="utf-8")
        for each in ("rules", "app"):
            monkeypatch.delitem(sys.modules, each, raising=False)
        importlib.invalidate_caches()
        module = importlib.import_module("app")
        assert module.__file__ == str(tmp_path / "app.py")
        return reached([getattr(module, name)], str(tmp_path / "app.py"))

    return found


@pytest.mark.parametrize(
    ("name", "old", "new", "changed"),
    [
        ("by_module", "return g(x) + LIMIT", "return g(x) - LIMIT", ["function f in rules.py"]),
        ("by_module", "x * 2", "x * 3", ["function g in rules.py"]),
        ("by_module", "LIMIT = 3", "LIMIT = 4", ["constant LIMIT in rules.py"]),
        ("by_lookup", "def unnamed(x):\n    return x", "def unnamed(x):\n    return -x", ["module rules.py"]),
        ("by_instance", "* self.FACTOR", "", ["function Rule.apply in rules.py"]),
        ("by_instance", "def base(self, x):\n        return x", "def base(self, x):\n        return -x",
         ["function Base.base in rules.py"]),
        ("by_instance", "FACTOR = 7", "FACTOR = 8", ["class Rule in rules.py"]),
        ("by_instance", "x + 1", "x + 2", ["function Rule.static in rules.py"]),
        ("by_instance", "return self.n\n", "return -self.n\n", ["function Rule.shown in rules.py"]),
        ("by_instance", "rule = Rule(5)", "rule = Rule(6)", ["constant rule in app.py", "module rules.py"]),
        ("by_cache", "x * 2", "x * 3", ["function g in rules.py"]),
        ("with_lock", '"DE": 19', '"DE": 16', ["constant RATES in rules.py"]),
        ("partial", "x * 2", "x * 3", ["function g in rules.py"]),
        ("instance", "* self.FACTOR", "", ["function Rule.apply in rules.py"]),
        ("bound", "* self.FACTOR", "", ["function Rule.apply in rules.py"]),
        ("bound", "rule = Rule(5)", "rule = Rule(6)", ["Rule object", "module rules.py"]),
        ("inside", "x * 2", "x * 3", ["function g in rules.py"]),
    ],
)  # fmt: skip
def test_a_change_in_a_users_module_is_named(
    parts: Callable[..., dict[str, str]], name: str, old: str, new: str, changed: list[str]
) -> None:
    before = parts(name)
    assert RULES.count(old) == 1
    assert differences(before, parts(name, RULES.replace(old, new))) == changed
    assert parts(name) == before


@pytest.mark.parametrize(
    ("name", "old", "new", "changed"),
    [
        ("partial", "partial(rules.f)", "partial(rules.f, x=1)", ["partial object"]),
        ("partial", "partial(rules.f)", "partial(rules.f, 1)", ["partial object"]),
        ("instance", "instance = Rule(2)", "instance = Rule(3)", ["Rule object"]),
        ("by_module", "return 1", "return 2", []),
    ],
)
def test_of_the_file_of_the_views_only_what_is_called_counts(
    parts: Callable[..., dict[str, str]], name: str, old: str, new: str, changed: list[str]
) -> None:
    assert differences(parts(name), parts(name, app=APP.replace(old, new))) == changed


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("by_globals", ["module app.py"]),
        ("by_eval", ["module app.py"]),
        ("by_module_of_itself", ["module app.py"]),
        ("by_import_of_itself", ["module app.py"]),
        ("by_getattr_of_a_value", []),
    ],
)
def test_the_file_of_the_views_counts_where_names_are_looked_up_in_it(
    parts: Callable[..., dict[str, str]], name: str, changed: list[str]
) -> None:
    assert differences(parts(name), parts(name, app=APP.replace("RATE = 5", "RATE = 6"))) == changed
    assert differences(parts(name), parts(name, app=APP.replace("RATE = 5", "# The rate.\n\nRATE = 5"))) == []


class Prices:
    """An object with a cache that fills as it is used."""

    def __init__(self, base: int) -> None:
        self.base = base

    @functools.cached_property
    def doubled(self) -> int:
        return 2 * self.base


def test_a_cache_that_was_filled_changes_nothing() -> None:
    empty, full, other = Prices(5), Prices(5), Prices(6)
    assert full.doubled == 10
    before, after, changed = (reached([partial(max, each)], "") for each in (empty, full, other))
    assert before == after != changed


def test_comments_and_blank_lines_change_nothing(parts: Callable[..., dict[str, str]]) -> None:
    spaced = "# Rates of 2026.\n" + RULES.replace("\n\n\n", "\n\n\n\n# ---\n\n").replace("x * 2", "x  *  2  # twice")
    assert spaced != RULES
    assert parts("by_module", spaced) == parts("by_module")


def test_of_a_library_the_version_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "taxes.py").write_text("def tax(x):\n    return x\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "taxes", raising=False)

    def found(version: str, source: str) -> dict[str, str]:
        for folder in installed.glob("*.dist-info"):
            folder.rename(installed / f"taxes-{version}.dist-info")
        folder = installed / f"taxes-{version}.dist-info"
        folder.mkdir(exist_ok=True)
        (folder / "METADATA").write_text(f"Name: taxes\nVersion: {version}\n", encoding="utf-8")
        (installed / "taxes.py").write_text(source, encoding="utf-8")
        importlib.invalidate_caches()

        def inside(x: int) -> Any:
            import taxes  # type: ignore[import-not-found]

            return taxes.tax(x)

        return reached([inside], __file__)

    before = found("1.26", "def tax(x):\n    return x\n")
    assert before["library taxes"] == "1.26"
    assert found("1.26", "def tax(x):\n    return -x\n") == before
    assert differences(before, found("2.0", "def tax(x):\n    return -x\n")) == ["library taxes: 1.26 before, 2.0 now"]


def test_two_functions_of_one_name_are_told_apart_by_what_they_hold() -> None:
    def make(step: int) -> Callable[[int], int]:
        def add(value: int) -> int:
            return value + step

        return add

    one_two, two_one = reached([make(1), make(2)], __file__), reached([make(2), make(1)], __file__)
    assert reached([make(1), make(2)], __file__) == one_two
    assert differences(one_two, two_one) == [
        f"variable step of function {test_two_functions_of_one_name_are_told_apart_by_what_they_hold.__name__}.make.add"
        f" in {Path(__file__).name}{number}"
        for number in ("", " (2)")
    ]


def test_the_body_of_a_class_inside_a_function_reads_globals(monkeypatch: pytest.MonkeyPatch) -> None:
    def udf(value: int) -> int:
        class Rate:
            percent = RATE

        return value * Rate.percent

    before = reached([udf], __file__)
    monkeypatch.setitem(globals(), "RATE", 20)
    assert differences(before, reached([udf], __file__)) == [f"constant RATE in {Path(__file__).name}"]


RATE = 19


@pytest.mark.parametrize(("kind", "sign"), [(float, 1), (int, -1)])
def test_fields_and_checks_of_a_model_count(kind: type, sign: int) -> None:
    def view(kind: type, sign: int) -> Callable[[int], object]:
        class Order(pydantic.BaseModel):
            price: kind  # type: ignore[valid-type]

            @pydantic.field_validator("price")
            @classmethod
            def is_positive(cls, value: int) -> int:
                return value * sign

        return lambda value: Order(price=value)

    assert reached([view(int, 1)], __file__) == reached([view(int, 1)], __file__)
    assert reached([view(int, 1)], __file__) != reached([view(kind, sign)], __file__)


class Refusing:
    """An object that lets nobody look into it."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RuntimeError("no")

    def __getstate__(self) -> object:
        raise RuntimeError("no")


class Hollow:
    """An object with no attributes that can be read."""

    __slots__ = ("missing",)

    def __getattr__(self, name: str) -> Any:
        raise OSError(name)


def test_odd_objects_do_no_harm() -> None:
    circle: list[Any] = []
    circle.append(circle)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    odd = [circle, deep, Refusing(), Hollow(), sys.stdout, iter([1]), (n for n in ""), 10**5000, float("nan"), object]

    def udf(value: int) -> int:
        return value if odd else 0

    def unset(value: int) -> int:
        return later if value else 0

    found = [reached([udf, unset], __file__) for _ in range(2)]
    assert found[0] == found[1]
    later = 1


SCRIPT = """
import enum
import functools
import os
from os import environ
import pydantic
from tests.plans.test_reached import Refusing
from penstock.plans.reached import reached
import numpy as np

class Color(enum.Enum):
    RED = 1
    BLUE = 2

class Order(pydantic.BaseModel):
    price: int
    parts: list["Order"] = []
    @pydantic.field_validator("price")
    def is_positive(cls, value): return abs(value)

@functools.singledispatch
def told(value): return str(value)

NAMES = frozenset("abcdefgh")
MIXED = {"a", 1, None, Color.RED, ("x", 2.5)}
TABLE = {name: {name, name + name} for name in NAMES}
ARRAY = np.arange(10)

class Rule:
    def __init__(self): self.names, self.rule = {Color.RED, Color.BLUE}, self
    def __call__(self, x): return x in NAMES or x in MIXED or TABLE.get(x) or ARRAY or (Refusing(), object(), environ)
    def orders(self, x): return Order(price=x), pydantic.TypeAdapter(list[Order]), told(x)

told("x") if os.environ["PYTHONHASHSEED"] == "2" else None
print(reached([Rule(), lambda x: x, Rule().__call__], "app.py"))
"""


def test_the_parts_are_the_same_in_every_process() -> None:
    def run(seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    first = run("1")
    assert "constant TABLE" in first
    assert "library numpy" in first
    assert run("2") == first
