"""Alerts to web hooks: one JSON document in a POST, with a key by which a repetition can be known."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http.client import HTTPException
from pathlib import Path
from typing import Any

from penstock.alerts.entries import Entry
from penstock.alerts.mail import identity, subject
from penstock.errors import NotDelivered

RETRIED = (408, 425, 429)
"""Answers below 500 that say: later."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def post(address: str, entry: Entry, *, timeout_seconds: float, ca: Path | None) -> None:
    """Sends an entry to a web hook. NotDelivered says whether to try again; the address is not in it."""
    request = urllib.request.Request(
        address,
        data=json.dumps(document(entry), ensure_ascii=False).encode(),
        headers={
            "Content-Type": "application/json; charset=utf-8",
            "User-Agent": "penstock",
            "Idempotency-Key": identity(entry),
        },
        method="POST",
    )
    try:
        context = ssl.create_default_context(cafile=None if ca is None else str(ca))
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect())
        answer = opener.open(request, timeout=timeout_seconds)
    except urllib.error.HTTPError as error:
        error.close()
        is_final = error.code < 500 and error.code not in RETRIED
        raise NotDelivered(entry.receiver, f"it answers {error.code}", is_retryable=not is_final) from None
    except (OSError, HTTPException, ValueError) as error:
        raise NotDelivered(entry.receiver, _reason(error), is_retryable=True) from None
    # It has said yes. What else it has to say is not waited for: it may never come.
    with suppress(OSError, HTTPException):
        answer.close()


def document(entry: Entry) -> dict[str, Any]:
    """What a web hook is sent. `text` alone is what chat programs show."""
    return {
        "text": f"{subject(entry)}\n{entry.text}" if entry.rows_total > 1 else subject(entry),
        "pipeline": entry.pipeline,
        "alert": entry.alert,
        "number": entry.number,
        "view": entry.view,
        "time": (_EPOCH + timedelta(microseconds=entry.clock_us)).isoformat().replace("+00:00", "Z"),
        "rows_total": entry.rows_total,
        "rows": entry.rows,
    }


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An alert goes where its author said, and nowhere else."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def _reason(error: BaseException) -> str:
    cause = getattr(error, "reason", error)
    if isinstance(cause, TimeoutError):
        return "it does not answer in time"
    if isinstance(cause, ssl.SSLError):
        return f"its certificate or its TLS cannot be trusted: {getattr(cause, 'verify_message', '') or cause.reason}"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return type(cause).__name__
