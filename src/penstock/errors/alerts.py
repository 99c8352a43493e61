"""What can go wrong around alerts: what they watch, and how people are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors.base import PenstockError
from penstock.errors.pipeline import PipelineError

if TYPE_CHECKING:
    from penstock.pipeline.place import Place


class AlertConditionError(PipelineError):
    """The `when=` of an alert cannot be asked of the rows of its view."""

    def __init__(self, alert: str, view: str, place: Place, when: str, found: str, hint: str = "") -> None:
        self.alert = alert
        self.when = when
        self.found = found
        super().__init__(f"alert {alert!r} cannot have when = {when!r}", place, found, hint, view=view)


class AlertFunctionError(PipelineError):
    """An alert's function has parameters that it cannot be called with."""

    def __init__(self, alert: str, place: Place, found: str) -> None:
        self.alert = alert
        self.found = found
        super().__init__(
            f"alert {alert!r} cannot be called",
            place,
            f"expected: a function of the row, or of the row and what it was before; found {found}",
            f"write def {alert}(row) or def {alert}(row, before)",
        )


class AlertError(PenstockError):
    """Something about telling people."""


class UnknownAlert(AlertError):
    """No entry has that pipeline, alert and number."""

    def __init__(self, pipeline: str, alert: str, number: int) -> None:
        self.pipeline = pipeline
        self.alert = alert
        self.number = number
        super().__init__(
            f"alerts: nothing was told as number {number} of alert {alert!r} in pipeline {pipeline!r}\n"
            "  to see what was told: penstock alert list"
        )


class NotDelivered(AlertError):
    """A receiver did not take a message. `is_retryable` says whether it may take it later."""

    def __init__(self, receiver: str, reason: str, *, is_retryable: bool) -> None:
        self.receiver = receiver
        self.reason = reason
        self.is_retryable = is_retryable
        todo = "it is tried again" if is_retryable else "it is not tried again before: penstock alert retry"
        super().__init__(f"alerts: {receiver} was not told\n  {reason}\n  {todo}")
