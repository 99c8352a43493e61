"""Which topics were written record at a time: steps must not write them as well, nor a run without its progress."""

from __future__ import annotations

from sqlalchemy import Connection, insert, select

from penstock.clock import now_us
from penstock.views.system_tables import REALTIME

_R = REALTIME.c


def written_at_a_time(connection: Connection, pipeline: str) -> dict[str, str]:
    """The topics that views of this pipeline wrote record at a time, each with the name of the view."""
    query = select(_R.topic, _R.view_name).where(_R.pipeline == pipeline)
    return {row.topic: row.view_name for row in connection.execute(query)}


def note_topic(connection: Connection, pipeline: str, topic: str, view: str) -> None:
    """Notes that a view begins to write a topic record at a time; once."""
    if topic not in written_at_a_time(connection, pipeline):
        connection.execute(insert(REALTIME).values(pipeline=pipeline, topic=topic, view_name=view, started_us=now_us()))
