"""What answers look like: for the OpenAPI description. Answers are written without them, for speed."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class AsOf(BaseModel):
    """How fresh an answer is."""

    clock: str | None = Field(description="The arrival clock: nothing that arrived later is in it.")
    offsets: dict[str, dict[str, int]] = Field(description="Topic, partition, the first offset that is not in yet.")
    generation: int | None = None
    behind: int | None = Field(None, description="Records of the log that are not in it yet.")


class View(BaseModel):
    """A view, without its rows."""

    view: str
    pipeline: str
    kept: str
    key: list[str] | None
    columns: dict[str, str]
    changelog: str | None
    rows: int
    late: int
    corrected: int
    as_of: AsOf


class Views(BaseModel):
    """All views."""

    views: list[View]


class Rows(BaseModel):
    """A page of the rows of a view."""

    view: str
    as_of: AsOf
    next: str | None = Field(description="The `page` to ask for next; null at the end.")
    rows: list[dict[str, Any]]


class Change(BaseModel):
    """A row as it was and as it is."""

    id: str = Field(description="Where to go on from, as `from` or Last-Event-ID.")
    partition: int
    offset: int
    operation: str
    key: list[Any]
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    as_of: dict[str, Any]


class TopicAsOf(BaseModel):
    """Where a topic ends."""

    clock: str | None = Field(description="When its last record arrived.")
    offsets: dict[str, int] = Field(description="Partition, the offset of the next record.")


class Changes(BaseModel):
    """A page of changes."""

    topic: str
    as_of: TopicAsOf
    next: str
    records: list[Change]


class Record(BaseModel):
    """A record of the log."""

    id: str = Field(description="Where to go on from, as `from` or Last-Event-ID.")
    partition: int
    offset: int
    arrived: str
    late: bool | None
    event: dict[str, Any]


class Records(BaseModel):
    """A page of records."""

    topic: str
    as_of: TopicAsOf
    next: str = Field(description="The `from` to ask for next.")
    records: list[Record]


class Topics(BaseModel):
    """All topics."""

    topics: list[dict[str, Any]]


class OffsetRange(BaseModel):
    """Consecutive offsets of one partition."""

    partition: int
    start: int
    stop: int = Field(description="The offset after the last.")


class Posted(BaseModel):
    """What became of events. They are on disk."""

    topic: str
    stored: int
    duplicates: int = Field(description="Stored before, under the same idempotency key.")
    offsets: list[OffsetRange]


class Problem(BaseModel):
    """What was wrong."""

    kind: str
    message: str
    details: list[str] = Field(description="What was expected, and what to do.")
    is_retryable: bool
    rejected: list[dict[str, Any]] | None = None


class Refused(BaseModel):
    """Every answer that is none."""

    error: Problem


class Status(BaseModel):
    """Whether all is well."""

    status: str


PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": Refused, "description": "Something in the request cannot be understood."},
    401: {"model": Refused, "description": "A token is needed, and there is none, or none that is known."},
    403: {"model": Refused, "description": "The token does not have the right, or the page is of another origin."},
    404: {"model": Refused, "description": "Nothing has that name."},
    409: {"model": Refused, "description": "The view has no changelog, or the key belongs to other events."},
    410: {"model": Refused, "description": "Retention removed it, or the topic was deleted."},
    413: {"model": Refused, "description": "The body is too large."},
    415: {"model": Refused, "description": "The body is neither JSON nor JSON lines."},
    422: {"model": Refused, "description": "Events do not fit the topic. Nothing was stored."},
    503: {"model": Refused, "description": "Not now: too much to do, or something is away. Try again."},
}
