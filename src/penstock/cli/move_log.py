"""penstock move-log: take a log from a folder to Kafka."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Json, settings_of
from penstock.cli.output import print_json, print_table

if TYPE_CHECKING:
    from penstock.load.moving import Progress


def move_log(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="FROM", help="The log in a folder: dir:PATH.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="The log in Kafka: kafka://HOST:PORT.")],
    topic: Annotated[str, typer.Option(help="Only topics that match, such as 'orders.*'.")] = "*",
    as_json: Json = False,
) -> None:
    """Copy topics from a folder to Kafka: records keep partition, offset and arrival, groups their position.

    Stop producers and pipelines first. Since offsets stay the same, a pipeline goes on where it was as soon as its log
    is the new one; its views need no change. Killed, it goes on where it was when it is run again. The folder stays as
    it is. How Kafka is reached (password, certificates) is read from the settings.

    \b
    Example:
      penstock move-log dir:./data/log kafka://broker:9092
    """
    from penstock.load.moving import move_log as move
    from penstock.log.folder_log import FolderLog
    from penstock.log.log import Log

    if not source.startswith("dir:") or not target.startswith("kafka://"):
        raise typer.BadParameter(f"from dir:PATH to kafka://HOST:PORT, not from {source} to {target}")
    conf = settings_of(context).log.kafka
    with FolderLog(source, background=False) as old, Log(target, conf=conf) as new, _progress_bar() as progress:
        from penstock.kafka.log import KafkaLog

        assert isinstance(new, KafkaLog)
        moved = move(old, new, pattern=topic, progress=progress)
    if as_json:
        print_json([vars(each) for each in moved])
        return
    print_table(
        ["topic", "copied", "there before", "filled"],
        [(each.topic, each.records, each.already, each.filled) for each in moved],
    )
    print(f'moved; to go on there: [log] url = "{target}" in penstock.toml')


@contextmanager
def _progress_bar() -> Iterator[Progress]:
    """Shows how far each topic is, on a terminal; elsewhere nothing."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from penstock.cli.terminal import Terminal

    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        console=Terminal(stderr=True), transient=True, disable=not sys.stderr.isatty(),
    )  # fmt: skip
    with bar:
        tasks: dict[str, object] = {}

        def progress(topic: str, done: int, total: int) -> None:
            if topic not in tasks:
                tasks[topic] = bar.add_task(topic, total=total)
            bar.update(tasks[topic], completed=done, total=total)  # type: ignore[arg-type]

        yield progress
