"""The login: a page without scripts, to give a token once."""

from __future__ import annotations

import html

VERSION = "2"
"""Changes with the files of ours, so that no browser keeps old ones."""


def login_page(after: str, *, is_refused: bool = False) -> str:
    """The page as HTML; `after` is where to go then."""
    refused = (
        '<p class="refused" role="alert" id="refused">This token is not known here, or it may not read. '
        "Make one: <code>penstock token add NAME --rights read</code></p>"
    )
    described = ' aria-describedby="refused" aria-invalid="true"' if is_refused else ""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Log in · Penstock</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="/dashboard/static/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/dashboard/static/dashboard.css?{VERSION}"></head>
<body class="login"><main>
<h1>Penstock</h1>
<form method="post" action="/dashboard/login">
<p>A token is needed to look at this dashboard. The right <code>read</code> is enough.</p>
{refused if is_refused else ""}
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus{described}>
<input type="hidden" name="next" value="{html.escape(after, quote=True)}">
<button type="submit" class="primary">Log in</button>
</form></main></body></html>"""
