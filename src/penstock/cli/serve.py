"""penstock serve: views and topics over HTTP, and the dashboard."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.installed import SERVE, check_installed
from penstock.cli.options import LogUrl, ViewsUrl, settings_of

App = Annotated[
    str | None,
    typer.Argument(metavar="[APP]", help="The file of a pipeline: only its views and topics are served, and drawn."),
]


def serve(
    context: typer.Context,
    app: App = None,
    host: Annotated[str | None, typer.Option(help="Where to listen; anything but this machine needs tokens.")] = None,
    port: Annotated[int | None, typer.Option(help="On which port; 0 is any that is free.")] = None,
    is_opened: Annotated[bool, typer.Option("--open", help="Open the dashboard in a browser.")] = False,
    views_url: ViewsUrl = None,
    log_url: LogUrl = None,
) -> None:
    """Serve views, topics and the dashboard over HTTP, until Ctrl-C. Open to this machine alone without tokens.

    \b
    Example:
      penstock serve
      penstock serve weblogs.py --open
      penstock token add ada --rights read
      penstock serve --host 0.0.0.0
    """
    check_installed(SERVE, "serve", "nothing is served")
    from penstock.pipeline.loading import load_pipeline
    from penstock.service.server import serve as run_service

    pipeline = None if app is None else load_pipeline(app)
    settings = settings_of(context, log_url, views_url, {"serve.host": host, "serve.port": port})

    def started(url: str) -> None:
        print(f"dashboard: {url}/dashboard", flush=True)
        print(f"serving on {url}, described at {url}/docs; Ctrl-C ends it", flush=True)
        if is_opened:
            import webbrowser

            # Requests wait in the socket until the service answers, a moment from now.
            webbrowser.open(f"{url}/dashboard")

    run_service(settings, started, pipeline)
