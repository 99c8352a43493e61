"""Is the log still the one that stored views were computed from?"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from penstock.errors import LogReplaced, OffsetOutOfRange
from penstock.log.topic import Topic
from penstock.views.catalog import Generation

_REPLACED = "the topic was deleted and created again, or belongs to another log"


def check_origin(generation: Generation, topics: Mapping[str, Topic | None]) -> None:
    """LogReplaced if the fence of a generation was taken in another log than the one of these topics.

    None stands for a topic that is not there.
    """
    for name, topic in topics.items():
        why = _difference(generation, name, topic)
        if why is not None:
            raise LogReplaced(generation.pipeline, list(generation.views), name, why)


def _difference(generation: Generation, name: str, topic: Topic | None) -> str | None:
    """How a topic differs from the one that the fence was taken in; None if it does not."""
    origin, offsets = generation.fence.origins.get(name), generation.fence.offsets.get(name, {})
    if origin is None:
        return None
    if topic is None:
        return "the topic was deleted"
    is_same = origin.topic_id == topic.definition.id
    is_moved = not any(offsets.values())  # Nothing was read, so nothing can be other than it was.
    starts, ends = topic.start(), topic.end()
    for partition in topic.partitions:
        number, offset = partition.number, offsets.get(partition.number, 0)
        if offset > ends[number]:
            why = f"partition {number} ends at offset {ends[number]}, and the views have read it up to {offset}"
            return why if is_same else _REPLACED
        expected = origin.arrived_us.get(number)
        if expected is None or offset <= starts[number]:
            continue
        # One record for one read: none where compaction removed it, or where Kafka has the mark of a transaction.
        with suppress(OffsetOutOfRange):  # Retention has just removed it.
            for batch in partition.read(offset - 1, offset, columns=[]):
                for stamp in batch.column("_arrived"):
                    if stamp.value != expected:
                        why = (
                            f"the record at offset {offset - 1} of partition {number} arrived at {_time(stamp.value)},"
                            f" and the one that the views have read there at {_time(expected)}"
                        )
                        return why if is_same else _REPLACED
                    is_moved = True
    # A log that was moved may have another id. The last records that were read, to the microsecond, vouch for the rest.
    return None if is_same or is_moved else _REPLACED


def _time(us: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)).isoformat()
