"""All pages, by their address under /dashboard."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from nicegui import ui
from starlette.requests import Request

from penstock.dashboard import alert, alerts, clocks, overview, pipeline_page, runs, topic, topics, view, views
from penstock.dashboard.screen import Screen

ICON = (Path(__file__).parent / "static" / "icon.svg").read_text(encoding="utf-8")
BUILD_SECONDS = 15.0

Build = Callable[..., Any]
_PAGES: tuple[tuple[str, str, str, Build], ...] = (
    ("/", "Overview", "Overview", overview.build),
    ("/pipeline", "Pipeline", "Pipeline", pipeline_page.build),
    ("/topics", "Topics", "Topics", topics.build),
    ("/topics/{name}", "Topics", "Topic {name}", topic.build),
    ("/views", "Views", "Views", views.build),
    ("/views/{name}", "Views", "View {name}", view.build),
    ("/clocks", "Clocks", "Clocks", clocks.build),
    ("/runs", "Runs", "Runs", runs.build),
    ("/alerts", "Alerts", "Alerts", alerts.build),
    ("/alerts/{pipeline}/{alert}/{number}", "Alerts", "Alert {alert} #{number}", alert.build),
)


def register() -> None:
    """Makes NiceGUI know all pages. Once in a process."""
    for path, page, title, build in _PAGES:
        ui.page(path, response_timeout=BUILD_SECONDS)(_builder(page, title, build))


def _builder(page: str, title: str, build: Build) -> Callable[[Request], Any]:
    async def show(request: Request) -> None:
        given = {name: str(value)[:500] for name, value in request.path_params.items()}
        screen = Screen(request, page, title.format(**given))
        build(screen, **given)
        await screen.begin()

    return show
