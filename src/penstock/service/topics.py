"""The routes of topics: what there is, records from an offset or a moment on, and events in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from penstock.errors import RequestRefused
from penstock.events.schema import format_ddl
from penstock.log.topic import Topic
from penstock.service import models
from penstock.service.answers import JSON, dumps
from penstock.service.feed import Shape
from penstock.service.models import PROBLEMS
from penstock.service.posting import Posted, post
from penstock.service.records import Cut, cut_text, find_topic, parse_cut
from penstock.service.service import Service
from penstock.service.streams import EVENT_STREAM, EventStream, may_go_on, next_page, run_socket

Name = Annotated[str, Path(description="The topic.", max_length=200)]
From = Annotated[
    str,
    Query(
        alias="from", max_length=2000, description="earliest, latest, an offset, a time of arrival, or a cut: 0=17,1=4."
    ),
]
Limit = Annotated[int, Query(ge=1, description="At most so many; the service has a limit of its own.")]
Wait = Annotated[float, Query(ge=0, le=3600, description="Seconds to wait for records, if there are none yet.")]
LastEventId = Annotated[str | None, Header(max_length=2000, description="Go on after this id; wins over from.")]
LINES = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {"schema": {"type": "object", "description": "One event."}},
            LINES[0]: {"schema": {"type": "string", "description": "Events, one JSON object on each line."}},
        },
    }
}


def topic_routes(service: Service) -> APIRouter:
    """The routes of topics."""
    router = APIRouter(tags=["topics"], responses=PROBLEMS)

    @router.get("/topics", response_model=models.Topics, summary="All topics")
    async def list_topics() -> Response:
        found = await service.log_reads.run(lambda: [_about(service.log.topic(name)) for name in service.log.topics()])
        return Response(dumps({"topics": found}), media_type=JSON)

    @router.get(
        "/topics/{name}",
        response_model=models.Records,
        summary="Records: a page, a long poll, or (Accept: text/event-stream) as they come",
        responses={200: {"content": {EVENT_STREAM: {}}}},
    )
    async def read_topic(
        request: Request, name: Name, at: From = "earliest", limit: Limit = 100, wait: Wait = 0,
        last_event_id: LastEventId = None,
    ) -> Response:  # fmt: skip
        topic = await service.log_reads.run(find_topic, service.log, name)
        return await answer_records(service, request, topic, last_event_id or at, limit, wait, as_it_is)

    @router.websocket("/topics/{name}")
    async def follow_topic(socket: WebSocket, name: str) -> None:
        def begin() -> tuple[Topic, Cut]:
            topic = find_topic(service.log, name)
            return topic, parse_cut(topic, socket.query_params.get("from", "earliest"))

        await run_socket(service, socket, begin, as_it_is)

    @router.post(
        "/topics/{name}",
        response_model=models.Posted,
        summary="Events in: all of them, or none; the answer comes when they are on disk",
        openapi_extra=_BODY,
    )
    async def post_events(
        request: Request,
        name: Name,
        idempotency_key: Annotated[
            str | None,
            Header(min_length=1, max_length=200, description="Makes a retry harmless: a new one for each body."),
        ] = None,
    ) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != JSON and kind not in LINES:
            raise RequestRefused(
                415,
                f"the body is said to be {kind or 'nothing'}",
                f"expected: Content-Type: {JSON} for one event, {LINES[0]} for one on each line",
            )
        body = as_lines(kind, await request.body())
        sender = request.scope.get("penstock.sender", "")
        posted = await service.appends.run(_post, service, name, body, idempotency_key, sender)
        return Response(answer_posted(service, name, posted), media_type=JSON)

    return router


def as_lines(kind: str, body: bytes) -> bytes:
    """A body as JSON lines: one of JSON is a single line, for within JSON a line break is only ever space."""
    return body.replace(b"\r", b" ").replace(b"\n", b" ") if kind == JSON else body


def answer_posted(service: Service, name: str, posted: Posted) -> bytes:
    """What is said to whoever sent events; it is counted too."""
    service.metrics.posted(name, posted.stored, posted.duplicates)
    offsets = [{"partition": number, "start": start, "stop": stop} for number, start, stop in posted.ranges]
    return dumps({"topic": name, "stored": posted.stored, "duplicates": posted.duplicates, "offsets": offsets})


async def answer_records(
    service: Service, request: Request, topic: Topic, at: str, limit: int, wait: float, shape: Shape
) -> Response:
    """Records of a topic, as the client wants them: now, within a while, or as they come."""
    cut = await service.log_reads.run(parse_cut, topic, at)
    if EVENT_STREAM in request.headers.get("accept", "").lower():
        return EventStream(service, topic, cut, shape, may_go_on(request.scope))
    rows, seconds = min(limit, service.settings.rows_max), min(wait, service.seconds)
    page = await next_page(service, request.scope, topic, cut, rows, seconds)
    document = {
        "topic": topic.name,
        "as_of": {"clock": page.clock, "offsets": page.ends},
        "next": cut_text(page.after),
        "records": [shape(each) for each in page.records],
    }
    return Response(dumps(document), media_type=JSON)


def as_it_is(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """A record as the log has it."""
    return record


def _post(service: Service, name: str, body: bytes, key: str | None, sender: str) -> Posted:
    return post(service.topic_to_write(name), body, key=key, sender=sender)


def _about(topic: Topic) -> dict[str, Any]:
    definition = topic.definition
    return {
        "topic": topic.name,
        "schema": format_ddl(topic.schema),
        "key": list(definition.key or ()),
        "event_time": definition.event_time,
        "partitions": len(topic.partitions),
        "start": topic.start(),
        "end": topic.end(),
    }
