"""The routes of views: what there is, rows as of one moment, and changes as they come."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field
from starlette.responses import Response
from starlette.websockets import WebSocket

from penstock.errors import NoChangelog
from penstock.log.topic import Topic
from penstock.service.answers import ARROW, CSV, JSON, as_arrow, as_csv, as_json, dumps, moment
from penstock.service.models import PROBLEMS, Changes, Rows, Views
from penstock.service.records import Cut, find_topic, parse_cut
from penstock.service.rows import PAGE_LENGTH_MAX, Found, Wanted, read_rows
from penstock.service.service import Service, known_view
from penstock.service.streams import run_socket
from penstock.service.topics import From, LastEventId, Limit, Wait, answer_records
from penstock.views.catalog import Generation
from penstock.views.store import Snapshot

Name = Annotated[str, Path(description="The view.", max_length=200)]
Format = Literal["json", "csv", "arrow"]
Key = Annotated[
    Sequence[Annotated[str, Field(max_length=1000)]],
    Query(
        max_length=32, description="Of the key, in its order, or COLUMN=VALUE. May repeat; its first columns will do."
    ),
]
Where = Annotated[
    Sequence[Annotated[str, Field(max_length=1000)]],
    Query(max_length=32, description="COLUMN, a sign (= != < <= > >= ^=) and a value. May repeat. ^=: begins with."),
]
Since = Annotated[
    str | None, Query(alias="from", max_length=100, description="Windows that start at this moment or later.")
]
Until = Annotated[str | None, Query(alias="to", max_length=100, description="Windows that start before this moment.")]
By = Annotated[str | None, Query(max_length=200, description="The column of time that from and to are about.")]
Order = Annotated[str | None, Query(max_length=200, description="A column; -COLUMN is downwards. Without it: by key.")]
Page = Annotated[str | None, Query(max_length=PAGE_LENGTH_MAX, description="`next` of the answer before.")]
Kind = Annotated[
    Format | None, Query(alias="format", description="Or by Accept: text/csv, or application/vnd.apache.arrow.stream.")
]

Csv = Annotated[
    Literal["guarded", "raw"],
    Query(alias="csv", description="guarded: text that a spreadsheet would compute begins with an apostrophe."),
]

_ACCEPTED: dict[str, Format] = {"text/csv": "csv", "application/vnd.apache.arrow.stream": "arrow"}


def view_routes(service: Service) -> APIRouter:
    """The routes of views."""
    router = APIRouter(tags=["views"], responses=PROBLEMS)

    @router.get("/views", response_model=Views, summary="All views, and how fresh each is")
    async def list_views() -> Response:
        found = await service.work.run(
            lambda: [_about(service, each, name) for each in service.live() for name in each.views]
        )
        return Response(dumps({"views": found}), media_type=JSON)

    @router.get(
        "/views/{name}",
        response_model=Rows,
        summary="Rows of a view, as of one moment",
        responses={200: {"content": {CSV: {}, ARROW: {}}}},
    )
    async def read_view(
        request: Request,
        name: Name,
        key: Key = (),
        where: Where = (),
        since: Since = None,
        until: Until = None,
        by: By = None,
        order: Order = None,
        limit: Limit = 100,
        page: Page = None,
        kind: Kind = None,
        csv: Csv = "guarded",
    ) -> Response:
        rows = min(limit, service.settings.rows_max)
        wanted = Wanted(key, where, since, until, by, order, rows, page)
        accepted = kind or _accepted(request.headers.get("accept", ""))
        return await service.work.run(_rows, service, name, wanted, accepted, csv == "raw")

    @router.get(
        "/views/{name}/changes",
        response_model=Changes,
        summary="Changes of a view: a page, a long poll, or (Accept: text/event-stream) as they come",
        responses={200: {"content": {"text/event-stream": {}}}},
    )
    async def read_changes(
        request: Request, name: Name, at: From = "earliest", limit: Limit = 100, wait: Wait = 0,
        last_event_id: LastEventId = None,
    ) -> Response:  # fmt: skip
        topic = await service.log_reads.run(_changelog, service, name)
        return await answer_records(service, request, topic, last_event_id or at, limit, wait, _change)

    @router.websocket("/views/{name}/changes")
    async def follow_changes(socket: WebSocket, name: str) -> None:
        def begin() -> tuple[Topic, Cut]:
            topic = _changelog(service, name)
            return topic, parse_cut(topic, socket.query_params.get("from", "earliest"))

        await run_socket(service, socket, begin, _change)

    return router


def _about(service: Service, generation: Generation, name: str) -> dict[str, Any]:
    known, counters = generation.views[name], generation.counters[name]
    return {
        "view": name,
        "pipeline": generation.pipeline,
        "kept": known.kept,
        "key": None if known.key is None else list(known.key),
        "columns": {each.name: str(each.type) for each in known.schema},
        "changelog": known.details.get("changelog"),
        "rows": counters.rows,
        "late": counters.late,
        "corrected": counters.corrected,
        "as_of": service.as_of(generation, name),
    }


def _rows(service: Service, name: str, wanted: Wanted, kind: Format, raw: bool) -> Response:
    def body(snapshot: Snapshot) -> Found:
        return read_rows(snapshot, known_view(snapshot, name), wanted)

    found = service.reading(body, name)
    as_of = service.as_of(found.view.generation, name)
    headers = {"Penstock-As-Of": dumps(as_of).decode("ascii"), "Vary": "Accept"}
    if found.next is not None:
        headers["Penstock-Next"] = found.next
    if kind == "csv":
        return Response(as_csv(found.view, found.rows, raw=raw), headers=headers, media_type=CSV)
    about = {"view": name, "as_of": as_of, "next": found.next}
    if kind == "arrow":
        return Response(as_arrow(found.rows, about), headers=headers, media_type=ARROW)
    return Response(dumps({**about, "rows": as_json(found.rows)}), headers=headers, media_type=JSON)


def _changelog(service: Service, name: str) -> Topic:
    """The topic of a view's changes. NoChangelog says what to add."""
    topic = service.view(name).known.details.get("changelog")
    if not topic:
        raise NoChangelog(name)
    return find_topic(service.log, topic)


def _change(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """A record of a changelog as a change: what it was, what it is, and how far the log was in the view then."""
    event = record["event"]
    place = {name: record[name] for name in ("id", "partition", "offset")}
    told = {name: event.get(name) for name in ("operation", "before", "after")}
    try:
        fence = json.loads(event["offsets"])
        as_of = {"clock": moment(fence["clock_us"]), "offsets": fence["offsets"]}
        return {**place, **told, "key": json.loads(event["key"]), "as_of": as_of}
    except (KeyError, TypeError, ValueError, OverflowError):
        # Somebody else wrote into the topic. It is shown as it is: an error here would hide all that comes after it.
        return {**place, **told, "key": event.get("key"), "as_of": None}


def _accepted(accept: str) -> Format:
    names = [each.partition(";")[0].strip().lower() for each in accept.split(",")]
    return next((_ACCEPTED[name] for name in names if name in _ACCEPTED), "json")
