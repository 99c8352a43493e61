"""Why a view may differ: a guess in plain words, with the line of the user's file that it points at.

What differs between two batches does not repeat itself. What repeats itself and is right in one step and wrong in many
depends on where the steps are cut. What stands in the plan, and what the view declares, says the rest.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from types import CodeType

import pyarrow as pa

from penstock.pipeline.place import Place
from penstock.plans.building import line_with
from penstock.plans.fingerprint import functions_of
from penstock.plans.reached import users_functions
from penstock.plans.tree import Expression, plan_of
from penstock.upkeep.compiled import CompiledView
from penstock.verify.remembering import remembered

UNORDERED = {
    "First": "first",
    "Last": "last",
    "AnyValue": "any_value",
    "CollectList": "collect_list",
    "CollectSet": "collect_set",
    "ListAgg": "listagg",
    "NthValue": "nth_value",
}
"""By Catalyst class: functions that take rows in whatever order they come."""
TIES = {
    "MaxBy": "max_by",
    "MinBy": "min_by",
    "Mode": "mode",
    "RowNumber": "row_number",
    "Lag": "lag",
    "Lead": "lead",
}
"""Those that have an order, which two rows may share."""
PICKING = {"Deduplicate": "dropDuplicates", "GlobalLimit": "limit", "Tail": "tail", "Offset": "offset"}
"""By node: what picks rows among others."""
SKETCHES = {"HyperLogLogPlusPlus": "approx_count_distinct", "ApproximatePercentile": "percentile_approx"}
_ADDING = {"Sum", "Average", "Corr", "ArrayAggregate", "CollectList", "PythonUDAF", "Percentile", "Median", "Product"}
_ADDING_PARTS = ("Stddev", "Variance", "Cov", "Regr", "Skew", "Kurt", "InPandas", "InArrow")
_CLOCKS = {"time", "time_ns", "monotonic", "perf_counter", "now", "utcnow", "today", "localtime", "gmtime"}
_CHANCE = {"random", "randint", "randrange", "choice", "choices", "shuffle", "uniform", "gauss", "uuid1", "uuid4"}
_SYSTEM = {"urandom", "environ", "getenv", "getpid", "open", "token_hex"}
_NOT_REPEATED = {
    **dict.fromkeys(_CLOCKS, "the clock"),
    **dict.fromkeys(_CHANCE, "chance"),
    **dict.fromkeys(_SYSTEM, "what the machine says"),
}
_BUILDS = {"BUILD_SET": "set", "SET_ADD": "set"}
"""By instruction: what makes a set without naming it."""
_MACHINE = (
    (
        ("localtime", "mktime", "ctime", "tzname", "altzone", "fromtimestamp", "astimezone", "timestamp"),
        "the machine's time zone",
        "name the time zone, such as datetime.fromtimestamp(seconds, tz=UTC)",
    ),
    (
        ("getlocale", "setlocale", "localeconv", "nl_langinfo", "strcoll", "strxfrm", "format_string", "currency"),
        "the machine's locale",
        "write the format out; a function may depend on its arguments only",
    ),
    (("hash",), "Python's hash seed", "use hashlib, or Spark's xxhash64() in the view"),
    (("set", "frozenset"), "the order of a set, which follows Python's hash seed", "sort what is taken from a set"),
    (
        ("environ", "getenv", "getcwd", "gethostname", "uname", "expanduser", "getpreferredencoding", "open"),
        "what the machine says",
        "a function may depend on its arguments only",
    ),
    (("strftime", "now", "today"), "the machine's time zone or locale", "name the time zone, and write names out"),
)
"""What answers may depend on by accident, the likeliest first: names, what they stand for, and what to do instead."""


@dataclass(frozen=True)
class Cause:
    """A guess, and what to do about it."""

    text: str
    hint: str
    place: Place
    """The line that it points at; of the view, where no other is known."""


@dataclass(frozen=True)
class Seen:
    """What was seen of one view over all runs."""

    repeats: bool
    """Two batches gave the same rows."""
    one_step: bool
    """A stream of one step gave the rows of the batch."""
    only_plain: bool
    """All runs of Penstock agree, and plain Spark gives others."""
    only_after_restart: bool
    """Only runs that were stopped or killed gave others."""
    only_elsewhere: bool
    """Only the run in another environment gave others."""
    only_by_scheduler: bool
    """What Spark's scheduler computed differs from what the driver did."""
    upstream: Collection[str]
    """Views it is made of that differ too."""


def cause_of(view: CompiledView, seen: Seen, groups: Callable[[], str]) -> Cause:
    """The likeliest cause of a difference. `groups` names, where that is known, the groups that met in one row."""
    spec = view.spec
    if seen.upstream:
        names = ", ".join(seen.upstream)
        return Cause(f"it is made of {names}, which differs too", f"repair {names} first", spec.place)
    if not seen.repeats:
        return _not_repeated(view)
    if seen.only_elsewhere:
        return _environment(view)
    if seen.only_by_scheduler:
        return Cause(
            "steps that run in the driver give other rows than Spark's scheduler does",
            'small_plans = "off" under [spark] in penstock.toml avoids it; please report this as an error of Penstock',
            spec.place,
        )
    # What is certain comes first: rows that were seen to meet, functions that remember. Ties are only possible, and
    # they rarely are right in one step and wrong in many, as what a view says of itself is.
    met = groups() if spec.within and not seen.only_plain else ""
    declared, ties = [] if seen.only_plain else list(_declared(view, met)), list(_ties(view))
    if not met and declared and ties:
        declared = [replace(each, hint=f"{each.hint}. Or {ties[0].text}: {ties[0].hint}") for each in declared]
    suspects = [*_remembering(view), *_unordered(view), *(declared + ties if seen.one_step else ties + declared)]
    if met or suspects:
        return declared[0] if met else suspects[0]
    if seen.only_plain:
        return Cause(
            "all runs of Penstock agree with each other, and plain Spark gives other rows: "
            f"it is kept by {view.keeping.how} ({view.keeping.why})",
            'kept="whole" computes all of it again each time; please report this as an error of Penstock',
            spec.place,
        )
    if seen.only_after_restart:
        return Cause(
            "only a run that was ended and continued gives other rows: something is remembered outside of the log",
            "a function may depend on its arguments only, not on what the process has seen before",
            spec.place,
        )
    what = "where steps are cut" if seen.one_step else "how it is computed, as a batch or step by step"
    return Cause(
        f"the answer depends on {what}, and it is kept by {view.keeping.how} ({view.keeping.why})",
        'kept="whole" computes all of it again each time; if that agrees, please report this as an error of Penstock',
        spec.place,
    )


def has_floats(view: CompiledView) -> bool:
    """Whether readers see floating-point numbers in a view."""
    return any(_holds_floats(each.type) for each in view.shape.columns)


def adds_floats(view: CompiledView) -> bool:
    """Whether a view may add floating-point numbers up, so that their last digits depend on the order."""
    plan = plan_of(view.frame)
    kinds = {node.kind for node in plan.everywhere()} | {each.kind for each in _expressions(view)}
    is_pandas = any(each.kind == "PythonUDF" and each.fields.get("evalType", 100) > 101 for each in _expressions(view))
    return is_pandas or bool(kinds & _ADDING) or any(part in kind for kind in kinds for part in _ADDING_PARTS)


def _not_repeated(view: CompiledView) -> Cause:
    """Two batches over the same records differ."""
    spec = view.spec
    for function in users_functions(functions_of(view.frame)):
        found = next(_suspicious(function.__code__), None)
        if found is not None:
            word, place = found
            return Cause(
                f"two batches differ: the function {function.__name__}() uses {word}, which is not the same twice",
                "a function may depend on its arguments only; use _arrived or the event time instead of the clock",
                place,
            )
    for suspect in (*_remembering(view), *_unordered(view), *_ties(view)):
        return Cause(f"two batches differ: {suspect.text}", suspect.hint, suspect.place)
    udfs = sorted({f"{each.name}()" for each in _expressions(view) if each.kind in ("PythonUDF", "PythonUDAF")})
    named = f" (it calls {', '.join(udfs)})" if udfs else ""
    return Cause(
        f"two batches over the same records differ: the function does not repeat itself{named}",
        "look for a clock, random numbers, rows taken in no fixed order, or something remembered between calls",
        spec.place,
    )


def _environment(view: CompiledView) -> Cause:
    """Only in another environment of the machine the rows are others."""
    told = "the answer depends on the environment of the machine: only a process with another one gives other rows"
    roots = [*functions_of(view.frame), *([] if view.spec.function is None else [view.spec.function])]
    functions = users_functions(roots)
    for words, what, hint in _MACHINE:
        known = dict.fromkeys(words, what)
        for function in functions:
            found = next(_suspicious(function.__code__, known), None)
            if found is not None:
                word, place = found
                return Cause(f"{told}: the function {function.__name__}() uses {word}", hint, place)
    return Cause(
        f"{told}: its time zone, its locale, Python's hash seed, or a variable",
        "a function may depend on its arguments only; what is computed where the file is imported counts too",
        view.spec.place,
    )


def _remembering(view: CompiledView) -> Iterator[Cause]:
    """Functions that change what outlives a call: where steps are cut decides what they have seen."""
    for function in users_functions(functions_of(view.frame)):
        for name, place in remembered(function):
            yield Cause(
                f"the function {function.__name__}() changes {name!r}, which the next call finds: "
                "each process begins anew, and each step sees other rows",
                "a function may depend on its arguments only; look at several rows with an aggregate or OVER instead",
                place,
            )


def _ties(view: CompiledView) -> Iterator[Cause]:
    """What in the plan depends on the order of rows only where two of them share their place."""
    kinds = {each.kind for each in _expressions(view)}
    for kind, word in TIES.items():
        if kind in kinds:
            yield Cause(
                f"{word}() chooses between rows that its order does not tell apart",
                "add columns to its order that do, such as _partition and _offset",
                _line_of(view, word),
            )


def _unordered(view: CompiledView) -> Iterator[Cause]:
    """What in the plan depends on the order of rows."""
    kinds = {each.kind for each in _expressions(view)}
    for kind, word in UNORDERED.items():
        if kind in kinds:
            yield Cause(
                f"{word}() takes rows in whatever order they come: it is on unordered rows",
                "use min_by, max_by or sort_array over a column that orders the rows, such as _offset",
                _line_of(view, word),
            )
    nodes = {node.kind for node in plan_of(view.frame).everywhere()}
    for kind, word in PICKING.items():
        if kind in nodes:
            yield Cause(
                f"{word} keeps any of several rows",
                "say which one: row_number() over an order that tells all rows apart",
                _line_of(view, word),
            )
    for kind, word in SKETCHES.items():
        if kind in kinds:
            yield Cause(
                f"{word}() depends on how its rows are split over tasks",
                "use agg.distinct or agg.quantiles of penstock.agg, which merge exactly",
                _line_of(view, word),
            )


def _declared(view: CompiledView, met: str) -> Iterator[Cause]:
    """What the view says of itself, and what may not be true: the likeliest first."""
    spec = view.spec
    if spec.horizon is not None and not met:
        yield Cause(
            f"right in one step and wrong in many: rows further apart than horizon={spec.horizon} belong together",
            "make horizon= longer, or leave it out",
            spec.place,
        )
    if spec.within:
        said = "; ".join(", ".join(each) for each in spec.within.values())
        yield Cause(
            f"right in one step and wrong in many: within={said!r} says that rows of different groups never meet. "
            + (met or "Rows of several groups decide one row of the view: the groups meet"),
            "name columns whose groups never meet in an aggregate, an OVER or a join; or leave within= out",
            spec.place,
        )
    if spec.merge:
        said = ", ".join(f"{name}: {rule}" for name, rule in spec.merge.items())
        yield Cause(
            f"right in one step and wrong in many: merge= ({said}) does not give what the function gives over all rows",
            "leave merge= out; penstock plan says what merges by itself",
            spec.place,
        )


def _line_of(view: CompiledView, word: str) -> Place:
    """Where a function is called; of the view, where that is not found."""
    return line_with(view.spec, word) or view.spec.place


def _holds_floats(kind: pa.DataType) -> bool:
    """Whether a column is of floating-point numbers, or has such inside."""
    return pa.types.is_floating(kind) or any(
        _holds_floats(kind.field(number).type) for number in range(kind.num_fields)
    )


def _expressions(view: CompiledView) -> Iterator[Expression]:
    for node in plan_of(view.frame).everywhere():
        for each in node.expressions():
            yield from each.walk()


def _suspicious(code: CodeType | None, known: Mapping[str, str] = _NOT_REPEATED) -> Iterator[tuple[str, Place]]:
    """Names in a function's code that do not depend on its arguments, and their lines. A set that is built is `set`."""
    if code is None:
        return
    for each in dis.get_instructions(code):
        is_name = each.opname.startswith(("LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "LOAD_NAME", "IMPORT_FROM"))
        word = str(each.argval) if is_name else _BUILDS.get(each.opname, "")
        if word in known:
            line = (each.positions.lineno if each.positions is not None else None) or code.co_firstlineno
            yield f"{known[word]} ({word})", _place(code.co_filename, line)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _suspicious(constant, known)


def _place(file: str, line: int) -> Place:
    import linecache

    return Place(file, line, linecache.getline(file, line).strip())
