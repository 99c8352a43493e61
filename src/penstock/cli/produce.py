"""penstock produce: send events, from a file or as they come."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from penstock.cli.options import Json, LogUrl, fail_as_nothing_fits, open_log
from penstock.cli.output import print_json, rate_text

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.events.encode import Encoded
    from penstock.log.topic import Topic
    from penstock.produce.producer import Producer

READ_BYTES = 1 << 20


def produce(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where to.")],
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="Where from; - is the standard input.")] = "-",
    kind: Annotated[
        Literal["jsonl", "csv"], typer.Option("--format", help="One JSON object a line, or CSV with a header.")
    ] = "jsonl",
    name: Annotated[
        str | None,
        typer.Option(help="A name for this producer: lines that it sent in an earlier run are left out. "
                          "For input that begins at the same line each time."),
    ] = None,
    as_json: Json = False,
    log_url: LogUrl = None,
) -> None:  # fmt: skip
    """Send events: JSON lines or CSV, from a file or as they come. Done when all are on disk.

    What does not fit the topic goes to TOPIC.dead, with the reason.

    \b
    Example:
      echo '{"time": "2026-01-01T12:00:00Z", "url": "/"}' | penstock produce clicks
      tail -f access.jsonl | penstock produce access
    """
    began = time.monotonic()
    with open_log(context, log_url, background=True) as log:
        target = log.topic(topic)
        with target.producer(name=name) as producer:
            feed: _Feed = (
                _CsvFeed(target, producer, name, file) if kind == "csv" else _Feed(target, producer, name, file)
            )
            is_interrupted = False
            try:
                feed.run()
            except KeyboardInterrupt:
                is_interrupted = True  # What was read is still taken to disk.
            producer.flush()
            stats = producer.stats
    seconds = time.monotonic() - began
    counts = {
        "sent": stats.sent + feed.buried,
        "acknowledged": stats.acknowledged + feed.buried,
        "rejected": stats.rejected + feed.buried,
        "duplicates": stats.duplicates,
        "seconds": round(seconds, 3),
    }
    if as_json:
        print_json(counts)
    else:
        rejected = f"{counts['rejected']:,} rejected (to {topic}.dead)" if counts["rejected"] else "0 rejected"
        again = f", {stats.duplicates:,} stored before" if stats.duplicates else ""
        rate = rate_text(counts["sent"], seconds)
        print(f"{counts['sent']:,} sent, {counts['acknowledged']:,} acknowledged, {rejected}{again}, {rate}")
    if is_interrupted:
        raise typer.Exit(130)
    if counts["rejected"] and counts["rejected"] == counts["sent"]:
        fail_as_nothing_fits(topic)


class _Feed:
    """Brings JSON lines to a producer, piece by piece as they come."""

    is_csv = False

    def __init__(self, topic: Topic, producer: Producer, name: str | None, file: str) -> None:
        self.topic = topic
        self.producer = producer
        self.name = name
        self.file = file
        self.rows = 0
        self.buried = 0

    def run(self) -> None:
        from penstock.load.row_source import TextPieces

        pieces = TextPieces(self.is_csv, self.file)
        for chunk in _chunks(self.file):
            for piece in pieces.add(chunk):
                self.send(piece)
        for piece in pieces.finish():
            self.send(piece)

    def send(self, piece: bytes) -> None:
        self.producer.send(piece, sequence=None if self.name is None else self.rows)
        self.rows += 0 if self.name is None else sum(1 for line in piece.split(b"\n") if line.strip())


class _CsvFeed(_Feed):
    """Brings CSV to a producer. Its first line names the columns."""

    is_csv = True

    def __init__(self, topic: Topic, producer: Producer, name: str | None, file: str) -> None:
        super().__init__(topic, producer, name, file)
        self.columns: list[str] | None = None

    def send(self, piece: bytes) -> None:
        from penstock.events.csv_lines import encode_csv
        from penstock.load.row_source import csv_header

        if self.columns is None:
            self.columns, piece = csv_header(piece, Path(self.file), self.topic.name, self.topic.schema)
        encoded = encode_csv(piece, self.columns, self.topic.schema)
        self._bury(encoded)
        for batch, first in _runs(encoded):
            self.producer.send(batch, sequence=None if self.name is None else self.rows + first)
        self.rows += encoded.batch.num_rows + len(encoded.rejected)

    def _bury(self, encoded: Encoded) -> None:
        import numpy as np

        from penstock.log.producers import named_producer
        from penstock.produce.dead_letters import DeadLetters

        if encoded.rejected:
            letters = DeadLetters(self.topic)
            letters.append(
                letters.batch(encoded.rejected, self.name or f"produce {self.file}"),
                producer=None if self.name is None else named_producer(self.name),
                sequences=np.array([self.rows + one.index for one in encoded.rejected], np.int64),
            )
            self.buried += len(encoded.rejected)


def _runs(encoded: Encoded) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Rows that stood one after the other in the input, with the number of the first: a sequence has no gaps."""
    import numpy as np

    if encoded.kept is None:
        yield encoded.batch, 0
    elif len(encoded.kept):
        breaks = np.flatnonzero(np.diff(encoded.kept) != 1) + 1
        for run in np.split(np.arange(len(encoded.kept)), breaks):
            yield encoded.batch.slice(int(run[0]), len(run)), int(encoded.kept[run[0]])


def _chunks(file: str) -> Iterator[bytes]:
    """What there is, as soon as it is there."""
    standard_input = cast(BufferedReader, sys.stdin.buffer)
    with nullcontext(standard_input) if file == "-" else open(file, "rb") as stream:
        while chunk := stream.read1(READ_BYTES):  # At most one read: it never waits for more than has come.
            yield chunk
