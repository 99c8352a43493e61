"""The application: all routes behind the guard, described by OpenAPI."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.dashboard.entrance import HOME, Dashboard
from penstock.errors import PenstockError, RequestRefused
from penstock.service.answers import JSON, dumps
from penstock.service.guard import Guard
from penstock.service.models import PROBLEMS, Status
from penstock.service.problems import headers_of, problem_of
from penstock.service.service import Service
from penstock.service.short_way import ShortWay
from penstock.service.topics import topic_routes
from penstock.service.views import view_routes

METRICS = "text/plain; version=0.0.4; charset=utf-8"
_SENT = ["authorization", "content-type", "idempotency-key", "last-event-id"]


def application(service: Service) -> ASGIApp:
    """The service as an ASGI application."""
    origins = _listed(service.settings.cors_origins)
    hosts = [*_listed(service.settings.allowed_hosts), service.settings.host, f"[{service.settings.host}]"]
    guarded = Guard(ShortWay(_Parted(routes(service), Dashboard(service)), service), service, hosts, origins)
    if not origins:
        return guarded
    # Around the guard: a page that may ask may also read why it was refused.
    return CORSMiddleware(
        guarded,
        allow_origins=origins,
        allow_methods=["GET", "POST"],
        allow_headers=_SENT,
        expose_headers=["Penstock-As-Of", "Penstock-Next"],
    )


def routes(service: Service) -> FastAPI:
    """The routes alone, without the guard."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.close()

    app = FastAPI(
        title="Penstock",
        version=version("penstock"),
        description="Views and topics. Every answer says as of when it is.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )

    @app.exception_handler(PenstockError)
    async def refuse(_: Request, error: PenstockError) -> Response:
        return _problem(error)

    @app.exception_handler(RequestValidationError)
    async def refuse_parameters(_: Request, error: RequestValidationError) -> Response:
        told = [f"{'.'.join(map(str, each['loc'][1:]))}: {each['msg']}" for each in error.errors()]
        return _problem(RequestRefused(400, "; ".join(told), "what can be asked for: /docs or /openapi.json"))

    @app.exception_handler(HTTPException)
    async def refuse_route(request: Request, error: HTTPException) -> Response:
        known = "what can be asked for: /docs or /openapi.json"
        headers = {"allow": _methods(app, request.url.path)} if error.status_code == 405 else {}
        return _problem(RequestRefused(error.status_code, error.detail.lower(), known), headers)

    @app.exception_handler(Exception)
    async def fail(_: Request, error: Exception) -> Response:
        return _problem(error)

    looking = asyncio.Lock()
    app.include_router(view_routes(service))
    app.include_router(topic_routes(service))

    @app.get("/health", tags=["service"], response_model=Status, summary="Whether the process answers")
    async def health() -> Response:
        return Response(dumps({"status": "alive"}), media_type=JSON)

    @app.get(
        "/ready",
        tags=["service"],
        response_model=Status,
        summary="Whether log and views can be read",
        responses={503: PROBLEMS[503]},
    )
    async def ready() -> Response:
        async with looking:  # One at a time, for everybody may ask.
            await service.work.run(_look, service)
        return Response(dumps({"status": "ready"}), media_type=JSON)

    @app.get(
        "/metrics",
        tags=["service"],
        summary="For Prometheus",
        response_class=Response,
        responses={200: {"content": {METRICS: {}}}, **{status: PROBLEMS[status] for status in (401, 403, 503)}},
    )
    async def metrics() -> Response:
        return Response(await service.work.run(_metrics, service), media_type=METRICS)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(_page(app.openapi()))

    @app.get("/", include_in_schema=False)
    async def home() -> Response:
        return RedirectResponse(HOME, 307)

    return app


class _Parted:
    """The dashboard where it is asked for, and the routes everywhere else."""

    def __init__(self, app: ASGIApp, dashboard: Dashboard) -> None:
        self._app = app
        self._dashboard = dashboard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if path == HOME or path.startswith(f"{HOME}/"):
            scope["route"] = Dashboard  # What the metrics count it as.
            await self._dashboard(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _problem(error: Exception, headers: Mapping[str, str] | None = None) -> Response:
    status, problem = problem_of(error)
    return Response(dumps({"error": problem}), status, {**(headers or {}), **headers_of(status)}, JSON)


def _methods(app: FastAPI, path: str) -> str:
    """The methods of a path. Starlette would name those of the first route only."""
    known = app.openapi()["paths"].items()
    matching = [methods for template, methods in known if re.fullmatch(re.sub(r"{\w+}", "[^/]+", template), path)]
    return ", ".join(sorted(method.upper() for methods in matching for method in methods)) or "GET"


def _look(service: Service) -> None:
    service.prompt.ask(service.log.topics)
    service.live()


def _metrics(service: Service) -> bytes:
    views = []
    for generation in service.live():
        for name in generation.views:
            counters = generation.counters[name]
            views.append(
                {
                    "pipeline": generation.pipeline,
                    "view": name,
                    "rows": counters.rows,
                    "late": counters.late,
                    "corrected": counters.corrected,
                    "behind": service.as_of(generation, name)["behind"],
                    "clock_seconds": generation.fence.clock_us / 1e6,
                }
            )
    return service.metrics.text(views)


def _listed(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _page(description: dict[str, Any]) -> str:
    """The routes as a page without scripts: nothing is loaded from anywhere."""
    lines = [
        "<!doctype html><meta charset=utf-8><title>Penstock</title>",
        "<style>body{font:1rem/1.5 sans-serif;max-width:60rem;margin:2rem auto}code{background:#eee}</style>",
        "<h1>Penstock</h1><p>For programs: <a href=/openapi.json>/openapi.json</a></p>",
    ]
    for path, methods in description["paths"].items():
        for method, route in methods.items():
            lines.append(
                f"<h2><code>{method.upper()} {html.escape(path)}</code></h2><p>{html.escape(route['summary'])}</p><dl>"
            )
            for each in route.get("parameters", []):
                about = html.escape(each.get("description", ""))
                lines.append(f"<dt><code>{html.escape(each['name'])}</code> ({each['in']})</dt><dd>{about}</dd>")
            lines.append("</dl>")
    return "\n".join(lines)
