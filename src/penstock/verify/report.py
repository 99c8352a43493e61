"""What verify found: for people as text, for programs as JSON, for the browser as one page of HTML (`page`)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Literal

from penstock.pipeline.place import Place
from penstock.upkeep.compare import CANCELLED, RELATIVE, Comparison, Example
from penstock.upkeep.explain import Explanation, Record

Kind = Literal["problem", "difference", "error"]


@dataclass(frozen=True)
class Line:
    """One view in one run."""

    run: str
    mode: str
    view: str
    seconds: float
    comparison: Comparison | None
    """With the batch; None where the run failed."""
    is_reference: bool = False
    """The batch that all others are compared with."""
    error: str = ""

    @property
    def agrees(self) -> bool:
        return not self.error and (self.comparison is None or self.comparison.agrees)


@dataclass(frozen=True)
class Difference:
    """One row that is not the same, in one run, and the records that touched it."""

    run: str
    example: Example
    explained: Explanation | None
    """What it is made of; None where its key cannot be followed to the log."""


@dataclass(frozen=True)
class Failure:
    """Why one view does not agree."""

    kind: Kind
    """A problem was found before running; an error stopped a run."""
    view: str
    place: Place | None
    cause: str
    hint: str
    cause_place: Place | None = None
    """The line that the cause points at."""
    runs: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True)
class Report:
    """Everything that verify found."""

    pipeline: str
    seed: int
    records: Mapping[str, int]
    """By topic, how many were compared."""
    lines: tuple[Line, ...]
    failures: tuple[Failure, ...]
    notes: tuple[str, ...] = ()
    tolerant: tuple[str, ...] = ()
    """Views that add floating-point numbers up."""
    not_run: Mapping[str, str] = field(default_factory=dict)
    """Views that were not run, and why."""

    @property
    def agrees(self) -> bool:
        """Whether every view gave the same rows in every run."""
        return not self.failures

    @property
    def verdict(self) -> str:
        views, runs = {line.view for line in self.lines}, {line.run for line in self.lines}
        if self.agrees:
            return f"everything agrees: {_counted(len(views), 'view')}, {_counted(len(runs), 'run')}"
        failed = {each.view for each in self.failures}
        total = len(views | failed | {*self.not_run})
        return f"{len(failed)} of {_counted(total, 'view')} failed: {', '.join(sorted(failed))}"

    @property
    def compared(self) -> str:
        """What is compared exactly, and what not."""
        exact = "Rows are compared on the view's key, and every value exactly (NaN equals NaN, -0.0 equals 0.0)"
        if not self.tolerant:
            return f"{exact}."
        return (
            f"{exact}, but for floating-point numbers of views that add such numbers up ({', '.join(self.tolerant)}): "
            f"they may differ by {RELATIVE:g} of the larger one, and by {CANCELLED:g} of the largest in their column."
        )

    def text(self) -> str:
        """For people."""
        counts = ", ".join(f"{count:,} of {topic}" for topic, count in self.records.items())
        parts = [f"verify: pipeline {self.pipeline!r}, records: {counts}; seed {self.seed}"]
        if self.lines:
            parts.append(_table(COLUMNS, [cells(line) for line in self.lines]))
        parts += [_failure_text(each) for each in self.failures]
        parts += ["\n".join(f"view {view!r} was not run: {why}" for view, why in self.not_run.items())]
        parts.append("\n".join([*self.notes, self.compared]))
        return "\n\n".join([part for part in parts if part] + [self.verdict]) + "\n"

    def document(self) -> dict[str, Any]:
        """For programs: values that JSON knows."""
        return {
            "pipeline": self.pipeline,
            "agrees": self.agrees,
            "seed": self.seed,
            "records": dict(self.records),
            "runs": [_line_document(line) for line in self.lines],
            "failures": [_failure_document(each) for each in self.failures],
            "not_run": dict(self.not_run),
            "notes": list(self.notes),
            "compared": self.compared,
            "tolerance": {"relative": RELATIVE, "of_column": CANCELLED, "views": list(self.tolerant)},
            "verdict": self.verdict,
        }

    def json(self) -> str:
        """The same as text."""
        return json.dumps(self.document(), indent=2, ensure_ascii=False)


COLUMNS = ("run", "view", "rows", "equal", "different", "missing", "extra", "seconds")


def cells(line: Line) -> tuple[str, ...]:
    """One line of the table."""
    found = line.comparison
    if found is None:
        return line.run, line.view, "failed", "-", "-", "-", "-", f"{line.seconds:.1f}"
    numbers = (found.equal, found.different, found.missing, found.extra)
    shown_numbers = ["-"] * 4 if line.is_reference else [f"{number:,}" for number in numbers]
    return line.run, line.view, f"{found.rows:,}", *shown_numbers, f"{line.seconds:.1f}"


def shown(value: Any) -> str:
    """A value as people read it.

    >>> shown({"start": datetime(2026, 1, 1), "end": datetime(2026, 1, 2)}), shown("a"), shown(None)
    ('[2026-01-01T00:00:00 .. 2026-01-02T00:00:00)', "'a'", 'NULL')
    """
    if value is None:
        return "NULL"
    if isinstance(value, datetime | date):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, dict):
        if value.keys() == {"start", "end"}:
            return f"[{shown(value['start'])} .. {shown(value['end'])})"
        return f"{{{', '.join(f'{name}: {shown(each)}' for name, each in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(shown, value))}]"
    return repr(value) if isinstance(value, str | bytes) else str(value)


def row_text(row: Mapping[str, Any] | None) -> str:
    """A row as people read it."""
    return "no such row" if row is None else ", ".join(f"{name}={shown(value)}" for name, value in row.items())


def explained_lines(explained: Explanation | None) -> Iterable[str]:
    """What a row is made of, as people read it."""
    if explained is None or not (explained.records or explained.upstream):
        yield "its key cannot be followed to records of the log"
        return
    if explained.records:
        yield f"made of {_counted(explained.records_total, 'record')}:"
        yield from (f"  {_record_text(record)}" for record in explained.records)
    if explained.upstream:
        yield f"made of {_counted(explained.upstream_total, 'row')} of other views:"
        yield from (f"  {row.view}: {row.record or row_text(row.key)}" for row in explained.upstream)
    yield from explained.notes


def _record_text(record: Record) -> str:
    late = "" if record.late_by is None else f", late by {record.late_by}"
    place = f"{record.topic}/{record.partition} offset {record.offset}"
    return f"{place}, arrived {shown(record.arrived)}{late}: {row_text(record.values)}"


def _failure_text(failure: Failure) -> str:
    heads = {"problem": "was not run", "difference": "differs", "error": "could not be computed"}
    lines = [f"view {failure.view!r} {heads[failure.kind]}"]
    if failure.place is not None:
        lines.append(f"  {failure.place.shown}")
    if failure.cause_place is not None and failure.cause_place != failure.place:
        lines.append(f"  {failure.cause_place.shown}")
    lines += [f"  {line}" for line in [*failure.cause.splitlines(), *failure.hint.splitlines()]]
    if failure.runs:
        lines.append(f"  in: {'; '.join(failure.runs)}")
    for each in failure.differences:
        lines += [f"  {line}" for line in _difference_lines(each)]
    return "\n".join(lines)


def _difference_lines(difference: Difference) -> Iterable[str]:
    example = difference.example
    width = max(len("batch"), len(difference.run))
    where = f" in {', '.join(example.columns)}" if example.columns else ""
    yield f"row {row_text(example.key) or '(no key)'}: {example.kind}{where}"
    yield f"  {'batch':<{width}}  {row_text(example.expected)}"
    yield f"  {difference.run:<{width}}  {row_text(example.found)}"
    yield from (f"  {line}" for line in explained_lines(difference.explained))


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    lines = []
    for row in (columns, ["-" * width for width in widths], *rows):
        padded = [
            text.ljust(width) if number < 2 else text.rjust(width)
            for number, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def _line_document(line: Line) -> dict[str, Any]:
    found = line.comparison
    counts = {} if found is None else {"rows": found.rows, "equal": found.equal, "different": found.different}
    rest = {} if found is None else {"missing": found.missing, "extra": found.extra}
    return {
        "run": line.run,
        "mode": line.mode,
        "view": line.view,
        "is_reference": line.is_reference,
        "agrees": line.agrees,
        **counts,
        **rest,
        "seconds": round(line.seconds, 3),
        "error": line.error or None,
    }


def _failure_document(failure: Failure) -> dict[str, Any]:
    return {
        "kind": failure.kind,
        "view": failure.view,
        "place": _place_document(failure.place),
        "cause": failure.cause,
        "cause_place": _place_document(failure.cause_place),
        "hint": failure.hint,
        "runs": list(failure.runs),
        "differences": [
            {
                "run": each.run,
                "kind": each.example.kind,
                "key": _plain(each.example.key),
                "batch": _plain(each.example.expected),
                "found": _plain(each.example.found),
                "columns": list(each.example.columns),
                **_explained_document(each.explained),
            }
            for each in failure.differences
        ],
    }


def _explained_document(explained: Explanation | None) -> dict[str, Any]:
    if explained is None:
        return {"records": None, "records_total": None, "upstream": None}
    records = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "offset": each.offset,
            "arrived": _plain(each.arrived),
            "is_late": each.late_by is not None,
            "values": _plain(each.values),
        }
        for each in explained.records
    ]
    upstream = [
        {"view": each.view, "key": _plain(each.key), "record": None if each.record is None else str(each.record)}
        for each in explained.upstream
    ]
    return {"records": records, "records_total": explained.records_total, "upstream": upstream}


def _place_document(place: Place | None) -> dict[str, Any] | None:
    return None if place is None else {"file": place.file, "line": place.line, "text": place.text}


def _plain(value: Any) -> Any:
    """A value as JSON has it; what it has no word for, as people read it."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, str | int | float) else shown(value)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
