"""A producer: takes events from your program and brings them to the log, many at a time."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, get_args

import pyarrow as pa

from penstock.durations import parse_duration
from penstock.errors import NotAnEvent, ProducerSettingError, SequenceRefused
from penstock.log.producers import named_producer, new_producer
from penstock.produce.ack import Ack, OffsetRange, Receipt
from penstock.produce.buffer import OnFull, own_copy
from penstock.produce.lanes import Identity
from penstock.produce.sender import Sender

if TYPE_CHECKING:
    import pandas as pd

    from penstock.log.topic import Topic

__all__ = ["Ack", "OffsetRange", "OnFull", "Producer", "ProducerStats", "Receipt"]

_SEQUENCE_MAX = (1 << 63) - 1
_EPOCH_MAX = (1 << 32) - 1


@dataclass(frozen=True)
class ProducerStats:
    """What became of the events so far. `sent` = `acknowledged` + `failed` + those under way."""

    sent: int
    """Events taken in by `send`, without those dropped."""
    acknowledged: int
    """Answered well: stored now, stored before (`duplicates`), or kept as dead letters (`rejected`)."""
    rejected: int
    """Did not fit the schema; they are in the dead-letter topic."""
    dropped: int
    """Thrown away by `send` because the buffer was full, with on_full="drop"."""
    spilled: int
    """Had to wait on disk, with on_full="spill"."""
    duplicates: int
    """Were stored before, by a producer of the same name."""
    blocked_seconds: float
    """How long `send` waited for room in the buffer."""
    failed: int
    """Could not be stored; their acks and `flush` raised why."""
    adopted: int
    """Left behind by a producer that died, and sent by this one. Not counted anywhere else."""


class Producer:
    """Brings events to one topic.

    `send` returns at once; the answer is an `Ack`, which is done when the events are on disk. Events gather for
    `linger` and while the disk is busy, and then one sync serves many. Events of one producer keep their order within
    a partition. Any number of threads may send.

    Close it, or use it in a `with` statement: that takes everything to disk and raises what failed. If a program
    ends without that, what was sent is still taken to disk, for at most 10 seconds, and what could not be is told on
    the standard error; a killed process loses what was not acknowledged, except what was spilled, which the next
    producer of the topic sends. A producer does not survive a fork: make a new one in the child.

    If a partition cannot be written, the acks of exactly its events raise that error, and so does `flush`; the other
    partitions go on. After that this producer stores nothing more there, so that nothing overtakes what failed.
    """

    def __init__(
        self,
        topic: Topic,
        *,
        name: str | None = None,
        epoch: int = 0,
        linger: str | timedelta = "5ms",
        batch_rows: int = 8192,
        buffer_bytes: int = 64 << 20,
        on_full: OnFull = "block",
        spill_directory: str | Path | None = None,
    ) -> None:
        """Starts the threads; nothing is written before something is sent.

        With a `name` every `send` needs a `sequence`, and the same sequence is stored once, whichever process sends it
        and how often: for those who repeat, in order, everything after the first that was not acknowledged. A higher
        `epoch` of the same name fences off the lower ones.
        When more than about `buffer_bytes` wait: on_full="block" makes `send` wait, "drop" drops what is being sent,
        "spill" lets it wait in files in `spill_directory` (default: in the log) until the log has caught up. Two logs
        must not share one: what waits for a topic of the same name in the other is taken for that of a deleted one.
        """
        self.topic = topic
        self.name = name
        for setting, is_fine, expected, found in (
            ("name", name is None or _is_text(name), "a text", name),
            ("epoch", _is_int(epoch) and 0 <= epoch <= _EPOCH_MAX, "a whole number from 0", epoch),
            ("batch_rows", _is_int(batch_rows) and batch_rows > 0, "a whole number above 0", batch_rows),
            ("buffer_bytes", _is_int(buffer_bytes) and buffer_bytes > 0, "a whole number above 0", buffer_bytes),
            ("on_full", on_full in get_args(OnFull), '"block", "drop" or "spill"', on_full),
            # What was dropped and is repeated would pass for a duplicate if a later one was stored.
            ("on_full", name is None or on_full != "drop", '"block" or "spill" for a producer with a name', on_full),
        ):
            if not is_fine:
                raise ProducerSettingError(topic.name, setting, expected, found)
        is_named = name is not None
        producer = new_producer() if name is None else named_producer(name)
        spills = Path(spill_directory) if spill_directory is not None else topic.log.spill_directory
        self._counts_lines = on_full == "drop" or is_named
        self._sender = Sender(
            topic,
            # Without a name, only what was spilled may be sent twice: by us, and by who finds it after our death.
            Identity(name or producer.hex(), producer, epoch, is_named, is_remembered=is_named or on_full == "spill"),
            linger=parse_duration(linger).total_seconds(),
            batch_rows=batch_rows,
            buffer_bytes=buffer_bytes,
            on_full=on_full,
            spill_directory=spills / topic.name,
            check_sequence=SequenceCheck(topic.name, name),
        )
        self._add_event = self._sender.buffer.add_event
        self._abandoned = weakref.finalize(self, self._sender.abandon)
        self._abandoned.atexit = False  # At the end of the process all live senders are closed together.

    def send(
        self,
        data: Mapping[str, Any] | Sequence[Mapping[str, Any]] | pa.Table | pa.RecordBatch | pd.DataFrame | bytes,
        *,
        sequence: int | None = None,
    ) -> Ack:
        """Sends an event (a dict), or many: a list of dicts, Arrow, pandas, or bytes of JSON lines.

        Returns at once, unless the buffer is full and the producer blocks. What is sent may be changed afterwards. With
        a named producer `sequence` is that of the event, or of the first of many; it must grow. Raises ProducerClosed,
        NotAnEvent or SequenceRefused, and what failed before if nothing can be stored any more.
        """
        if type(data) is dict:
            return self._add_event(data, sequence)
        return self._send_many(data, sequence)

    def flush(self, timeout: float | None = None) -> None:
        """Returns when everything sent before is on disk, what waits in the spill too.

        Raises the first error since the last flush. NotAcknowledged after `timeout` seconds: call it again.
        """
        self._sender.flush(timeout)

    def close(self, timeout: float | None = None) -> None:
        """Takes everything to disk, and ends. Raises what failed. NotAcknowledged after `timeout` seconds."""
        self._abandoned.detach()
        self._sender.close(timeout)

    @property
    def stats(self) -> ProducerStats:
        """What became of the events so far."""
        counts, buffer = self._sender.summary()
        return ProducerStats(
            counts.sent, counts.acknowledged, counts.rejected, buffer.dropped, counts.spilled, counts.duplicates,
            buffer.blocked_seconds, counts.failed, counts.adopted,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Producer({self.topic.name!r}{'' if self.name is None else f', name={self.name!r}'})"

    def _send_many(self, data: Any, sequence: int | None) -> Ack:
        add = self._sender.buffer.add_many
        if isinstance(data, list | tuple):
            copies = [own_copy(dict(event) if isinstance(event, Mapping) else event) for event in data]
            return add([event for event, _ in copies], len(copies), sum(length for _, length in copies), sequence)
        if isinstance(data, pa.Table | pa.RecordBatch):
            return add(data, data.num_rows, data.nbytes, sequence)
        if isinstance(data, bytes | bytearray | memoryview):
            text = bytes(data)
            rows = sum(1 for line in text.split(b"\n") if line.strip()) if self._counts_lines else None
            return add(text, rows, len(text), sequence)
        if isinstance(data, Mapping):
            return self._add_event(dict(data), sequence)
        if type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns"):
            return add(data.copy(), len(data), int(data.memory_usage(deep=True).sum()), sequence)
        raise NotAnEvent(self.topic.name, data)


class SequenceCheck:
    """Refuses sequences that would lose events: one that does not grow would pass for a duplicate."""

    def __init__(self, topic: str, name: str | None) -> None:
        self._topic = topic
        self._name = name
        self._last: int | None = None

    def __call__(self, sequence: int | None, rows: int) -> None:
        """Needs the producer's lock."""
        if self._name is None:
            if sequence is not None:
                raise SequenceRefused(self._topic, None, "no sequence, or a producer with name=...", sequence)
            return
        last = self._last
        if not _is_int(sequence) or sequence is None or not 0 <= sequence <= _SEQUENCE_MAX - rows:
            raise SequenceRefused(self._topic, self._name, "a whole number from 0, for every send", sequence)
        if last is not None and sequence <= last:
            raise SequenceRefused(self._topic, self._name, f"more than {last}, which was sent before", sequence)
        self._last = sequence + rows - 1 if rows else last


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
