"""What can go wrong while a pipeline runs: in a step, in a mode, in verify."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors.base import PenstockError


class MergeOverflow(PenstockError):
    """A merged number does not fit its column. Nothing was stored: it neither wraps around nor turns into a float."""

    def __init__(self, rule: str, type_name: str, row: int, column: str | None = None) -> None:
        self.rule = rule
        self.type_name = type_name
        self.row = row
        self.column = column
        named = f"column {column!r}" if column is not None else "a column"
        super().__init__(
            f"merge: the {rule} in {named} has grown too large\n"
            f"  expected: a number that fits {type_name}; found: a greater one, in row {row} of those merged\n"
            "  nothing was stored, and the view is as it was before this step\n"
            "  give the column room, such as sum(CAST(x AS DECIMAL(38, 0))), and rebuild the view"
        )

    def in_column(self, column: str, rule: str) -> MergeOverflow:
        """The same, with the name of the column and of its rule."""
        return MergeOverflow(rule, self.type_name, self.row, column)


class AggregateTypeError(PenstockError):
    """An aggregate of penstock.agg was given a column that is not of a type it can work on."""

    def __init__(self, rule: str, type_name: str, expected: str) -> None:
        self.rule = rule
        self.type_name = type_name
        self.expected = expected
        super().__init__(
            f"agg.{rule}: cannot work on values of type {type_name}\n"
            f"  expected: {expected}\n"
            f"  cast the column first, such as agg.{rule}(F.col(...).cast('double'))"
        )


class AggregateOptionError(PenstockError):
    """An aggregate of penstock.agg was given an option that it cannot have."""

    def __init__(self, rule: str, option: str, value: object, expected: str) -> None:
        self.rule = rule
        self.option = option
        self.value = value
        self.expected = expected
        super().__init__(f"agg.{rule}: {option} cannot be {value!r}\n  expected: {expected}")


class VerifyError(PenstockError):
    """Something keeps verify from comparing."""


class NothingRecorded(VerifyError):
    """The log holds no records of the pipeline's topics, so all ways to run it would agree and nothing be shown."""

    def __init__(self, pipeline: str, topics: Sequence[str], log: str) -> None:
        self.pipeline = pipeline
        self.topics = list(topics)
        self.log = log
        super().__init__(
            f"verify: there is nothing to compare {pipeline!r} on\n"
            f"  expected: recorded events in {', '.join(topics) or 'its topics'}; found: none in the log at {log}\n"
            "  bring some in, such as with penstock load FILE --topic TOPIC, or name another log with --log"
        )


class VerifyProcessFailed(VerifyError):
    """A process that verify started ended by itself before it was done."""

    def __init__(self, code: int, said: str, hint: str) -> None:
        self.code = code
        self.said = said
        told = [line for line in said.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
        last = "\n  ".join(told[-15:])
        super().__init__(f"verify: a process that runs the pipeline ended with exit code {code}\n  {last}\n  {hint}")


class FailedElsewhere(VerifyError):
    """What stopped a view in a process that verify started, as it said itself."""
