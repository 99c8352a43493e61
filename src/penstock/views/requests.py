"""What people ask of a run from outside, through the database: to switch in what it holds ready."""

from __future__ import annotations

from typing import Literal

from sqlalchemy import Connection, delete, insert, select

from penstock.clock import now_us
from penstock.views.system_tables import REQUESTS

Request = Literal["switch"]


def ask(connection: Connection, pipeline: str, request: Request) -> None:
    """Leaves a request for the run that owns the pipeline."""
    answer(connection, pipeline, request)
    connection.execute(insert(REQUESTS), {"pipeline": pipeline, "request": request, "asked_us": now_us()})


def is_asked(connection: Connection, pipeline: str, request: Request) -> bool:
    """Whether somebody has asked for it."""
    mine = (REQUESTS.c.pipeline == pipeline, REQUESTS.c.request == request)
    return connection.execute(select(REQUESTS.c.asked_us).where(*mine)).first() is not None


def answer(connection: Connection, pipeline: str, request: Request) -> None:
    """It is done, or no longer of interest."""
    connection.execute(delete(REQUESTS).where(REQUESTS.c.pipeline == pipeline, REQUESTS.c.request == request))
