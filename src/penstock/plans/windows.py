"""Windows of time in a plan: `window(time, '10 minutes', '5 minutes')` as Spark writes it out.

Spark turns the function into arithmetic on microseconds before anybody can look, and marks the column in its metadata,
which the JSON of a plan does not have. The arithmetic has one shape, which only Spark makes, since users cannot write
`PreciseTimestampConversion`; whatever differs from it in the least, such as a session window, is not one.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.plans.tree import Expression, Node, unaliased

_UNITS = ((86_400_000_000, "day"), (3_600_000_000, "hour"), (60_000_000, "minute"), (1_000_000, "second"))


@dataclass(frozen=True)
class TimeWindow:
    """One window function over one column of time."""

    time: int
    """The id of the attribute it is made of."""
    column: str
    duration_us: int
    slide_us: int
    offset_us: int

    @property
    def is_tumbling(self) -> bool:
        """Whether each moment is in exactly one window."""
        return self.duration_us == self.slide_us

    @property
    def measure(self) -> tuple[int, int, int]:
        """What two windows must share to be the same."""
        return self.duration_us, self.slide_us, self.offset_us

    def sql(self, column: str) -> str:
        """The window as SQL over a column of that name."""
        lengths = [self.duration_us, self.slide_us, self.offset_us]
        if not self.offset_us:
            lengths = lengths[:1] if self.is_tumbling else lengths[:2]
        return f"window({quoted(column)}, {', '.join(repr(_interval(each)) for each in lengths)})"


def time_window(expression: Expression) -> TimeWindow | None:
    """The window that an expression makes; None if it makes none, or one of a kind that is not known here."""
    parts = expression.children
    if expression.kind != "CreateNamedStruct" or len(parts) != 4 or _value(parts[0]) != "start":
        return None
    start, end = _converted(parts[1]), _converted(parts[3])
    # end: start + duration; start: time - remainder - shift
    if start is None or end is None or end.kind != "Add" or start.kind != "Subtract":
        return None
    duration = _number(end.children[1])
    moment, remainder = start.children[0].children[:2] if start.children[0].kind == "Subtract" else (None, None)
    if moment is None or remainder is None or remainder.kind != "CaseWhen" or duration is None:
        return None
    rest = remainder.children[-1]
    time = _time(moment)
    if rest.kind != "Remainder" or rest.children[0].kind != "Subtract" or time is None:
        return None
    offset, slide = _number(rest.children[0].children[1]), _number(rest.children[1])
    if offset is None or slide is None or time.id is None:
        return None
    return TimeWindow(time.id, time.name, duration, slide, offset)


def time_windows(plan: Node) -> dict[int, TimeWindow]:
    """By id of the attribute, the windows that are made in a plan, also under other names."""
    found: dict[int, TimeWindow] = {}
    for node in reversed([*plan.walk()]):
        named = [(each.id, unaliased(each)) for each in node.listed("projectList")]
        if node.kind == "Expand":
            named = [
                (number, each)
                for row in (node.fields.get("projections") or [])[:1]
                for (number, _), each in zip(node.outputs(), row, strict=False)
            ]
        for number, made in named:
            window = found.get(made.id or 0) if made.is_attribute else time_window(made)
            if window is not None and number is not None:
                found[number] = window
    return found


def bound_of(expression: Expression) -> Expression | None:
    """The window of which an expression takes the start or the end; None if it does not."""
    if expression.kind != "GetStructField" or not expression.children[0].is_attribute:
        return None
    window = expression.children[0]
    kind = window.fields.get("dataType")
    names = [each.get("name") for each in kind.get("fields", ())] if isinstance(kind, dict) else []
    return window if names == ["start", "end"] else None


def is_window_time(expression: Expression) -> bool:
    """Whether an expression is `window_time(window)`: the last moment of a window."""
    inner = _converted(expression)
    bound = _converted(inner.children[0]) if inner is not None and inner.kind == "Subtract" else None
    return bound is not None and bound_of(bound) is not None


def is_session(expression: Expression) -> bool:
    """Whether an expression is what a session window begins as: its bounds move with the rows beside it."""
    start = expression.children[1] if expression.kind == "CreateNamedStruct" and len(expression.children) == 4 else None
    inner = _converted(start) if start is not None and _value(expression.children[0]) == "start" else None
    return inner is not None and inner.kind == "PreciseTimestampConversion"


def quoted(column: str) -> str:
    """The column as SQL names it: backquotes only where they are needed."""
    return column if column.isidentifier() else "`" + column.replace("`", "``") + "`"


def _converted(expression: Expression) -> Expression | None:
    """What is inside the conversion from a number to a moment."""
    if expression.kind == "KnownNullable":
        expression = expression.children[0]
    return expression.children[0] if expression.kind == "PreciseTimestampConversion" else None


def _time(expression: Expression) -> Expression | None:
    """The bare attribute inside the conversion from a moment to a number."""
    inner = _converted(expression)
    return inner if inner is not None and inner.is_attribute else None


def _value(expression: Expression) -> str | None:
    return expression.fields.get("value") if expression.kind == "Literal" else None


def _number(expression: Expression) -> int | None:
    value = _value(expression)
    return int(value) if value is not None else None


def _interval(us: int) -> str:
    for unit_us, unit in _UNITS:
        if us and us % unit_us == 0:
            return f"{us // unit_us} {unit}{'s' if us // unit_us != 1 else ''}"
    return f"{us} microseconds"
