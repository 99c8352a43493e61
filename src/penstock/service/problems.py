"""Errors as answers: what was wrong, what was expected, what to do. Never a traceback, never a path of this machine."""

from __future__ import annotations

import logging
from typing import Any

from penstock.errors import (
    ClockAhead,
    CorruptionError,
    DurationError,
    EventsRefused,
    KafkaRefused,
    KafkaUnavailable,
    NoChangelog,
    OffsetOutOfRange,
    OutOfFiles,
    PartitionReadOnly,
    PenstockError,
    RecordsRefused,
    RecordTooLarge,
    RequestRefused,
    RowsReplaced,
    StartError,
    StoreUnavailable,
    TokensUnreadable,
    TooManyKeys,
    TopicDeleted,
    UnknownTopic,
    UnknownView,
    UnknownViewColumn,
    did_you_mean,
)

logger = logging.getLogger("penstock.service")

_STATUS: dict[type[PenstockError], int] = {
    UnknownView: 404,
    UnknownTopic: 404,
    TopicDeleted: 410,
    OffsetOutOfRange: 410,
    StartError: 400,
    DurationError: 400,
    UnknownViewColumn: 400,
    NoChangelog: 409,
    RecordsRefused: 422,
    RecordTooLarge: 422,
    TooManyKeys: 503,
}
_UNAVAILABLE: dict[type[PenstockError], str] = {
    StoreUnavailable: "the database of views does not answer",
    RowsReplaced: "the rows were replaced while they were read",
    PartitionReadOnly: "the log cannot be written at the moment",
    ClockAhead: "the clock of the service is years ahead of its log",
    OutOfFiles: "the service may open no more files",
    KafkaUnavailable: "the log does not answer",
    KafkaRefused: "the log refuses what it was asked",
    CorruptionError: "a part of the log is damaged and cannot be read",
    TokensUnreadable: "the tokens of this service cannot be read",
}

Problem = tuple[int, dict[str, Any]]
"""A status and a document."""


def problem_of(error: BaseException) -> Problem:
    """The answer to an error. What is our own affair goes to the logging, and the answer says only that it happened."""
    if isinstance(error, RequestRefused):
        return error.status, document(error)
    if isinstance(error, UnknownTopic):
        known = ", ".join(sorted(error.known)[:10]) or "none yet"
        lines = [f"known topics: {known}", *did_you_mean(error.name, error.known).split("\n  ")[1:]]
        return 404, _document("UnknownTopic", f"no topic is named {error.name!r}", lines)
    for kind, found in _UNAVAILABLE.items():
        if isinstance(error, kind):
            logger.error("serve: %s\n%s", found, error)
            todo = "try again a little later" if error.is_retryable else "the logging of the service says more"
            return 503, _document(type(error).__name__, found, [todo], is_retryable=error.is_retryable)
    for kind, status in _STATUS.items():
        if isinstance(error, kind):
            return status, document(error)
    logger.error("serve: a request failed", exc_info=error)
    return 500, _document("Failure", "the service failed; nobody expected this", ["its logging says more"])


def headers_of(status: int) -> dict[str, str]:
    """What else an answer of that status says."""
    if status == 401:
        return {"www-authenticate": "Bearer"}
    if status == 503:
        return {"retry-after": "1"}
    return {"connection": "close"} if status in (413, 421) else {}  # What is left of a body is not waited for.


def document(error: PenstockError) -> dict[str, Any]:
    """An error of ours in parts: its first line, and those that say what was expected and what to do."""
    first, *rest = str(error).splitlines()
    found = _document(type(error).__name__, first, [line.strip() for line in rest], is_retryable=error.is_retryable)
    if isinstance(error, EventsRefused):
        found["details"] = [*found["details"][:1], "nothing was stored; send the others without them"]
        found["rejected"] = [
            {"index": index, "column": column, "reason": reason} for index, column, reason in error.rejected
        ]
    return found


def _document(kind: str, message: str, details: list[str], *, is_retryable: bool = False) -> dict[str, Any]:
    message = (
        message.partition(": ")[2] if message.startswith(("serve: ", "log: ", "views: ", "penstock: ")) else message
    )
    return {"kind": kind, "message": message, "details": details, "is_retryable": is_retryable}
