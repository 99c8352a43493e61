"""Whether the libraries of an extra are there; one sentence where they are not."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

SERVE = ("fastapi", "httptools", "nicegui", "prometheus_client", "uvicorn", "uvloop", "websockets")
DEMO = (*SERVE, "aiosmtpd", "matplotlib")


def check_installed(modules: Sequence[str], extra: str, refused: str) -> None:
    """CommandRefused says what is missing, and how to install it."""
    from penstock.errors import CommandRefused

    missing = [each for each in modules if find_spec(each) is None]
    if missing:
        raise CommandRefused(
            refused, f"not installed: {', '.join(missing)}", f"to install them: pip install 'penstock[{extra}]'"
        )
