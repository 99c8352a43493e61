"""penstock topic: make, list, show, change and delete topics."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import Json, LogUrl, is_terminal, names, open_log, parse_size
from penstock.cli.output import bytes_text, moment, print_json, print_table, span_text

if TYPE_CHECKING:
    from penstock.log.log import Log
    from penstock.log.partition import Partition
    from penstock.log.topic import Topic

commands = typer.Typer(help="Make, list, show, change and delete topics.", no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The topic.")]
Lateness = Annotated[str | None, typer.Option(help="Later than this after its event time, a record is late: 10m.")]
RetentionAge = Annotated[str | None, typer.Option(help="Drop records after this long: 7d.")]
RetentionBytes = Annotated[str | None, typer.Option(help="Drop the oldest of a partition above this size: 10GB.")]
SegmentBytes = Annotated[str | None, typer.Option(help="Close and seal a segment at this size: 128MiB.")]
NONE = "none"
"""What takes a limit away again."""


@commands.command()
def create(
    context: typer.Context,
    name: Name,
    schema: Annotated[str, typer.Option(help="Columns in Spark DDL: 'time timestamp, ip string, status int'.")],
    key: Annotated[str | None, typer.Option(help="Columns whose equal values go to one partition: ip or a,b.")] = None,
    event_time: Annotated[str | None, typer.Option(help="The timestamp column that says when it happened.")] = None,
    lateness: Lateness = None,
    partitions: Annotated[int, typer.Option(help="Ordered parts; as many consumers of a group work at once.")] = 1,
    retention_age: RetentionAge = None,
    retention_bytes: RetentionBytes = None,
    segment_bytes: SegmentBytes = None,
    compact: Annotated[bool, typer.Option("--compact", help="Keep only the newest record of each key.")] = False,
    durability: Annotated[
        str, typer.Option(help="disk: acknowledged is on disk. os: a power cut may take 1 s.")
    ] = "disk",
    values: Annotated[str, typer.Option(help="json or avro: how Kafka keeps records. It never changes.")] = "json",
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Fine if it is there already.")] = False,
    log_url: LogUrl = None,
) -> None:
    """Make a topic.

    \b
    Example:
      penstock topic create access --schema 'time timestamp, ip string, status int' \\
          --key ip --event-time time --lateness 10m --partitions 4 --retention-age 7d
    """
    options: dict[str, Any] = {
        "partitions": partitions, "compact": compact, "durability": durability, "values": values
    }  # fmt: skip
    if lateness is not None:
        options["lateness"] = lateness
    if retention_bytes is not None:
        options["retention_bytes"] = parse_size(retention_bytes)
    if segment_bytes is not None:
        options["segment_bytes"] = parse_size(segment_bytes)
    with open_log(context, log_url) as log:
        is_new = name not in log.topics(dead=True)
        topic = log.create(
            name, schema, key=names(key), event_time=event_time, retention_age=retention_age, exist_ok=if_not_exists,
            **options,
        )  # fmt: skip
        if is_new:
            print(f"topic {name!r} is made, with {len(topic.partitions)} partition{'s' * (len(topic.partitions) > 1)}")
        else:
            print(f"topic {name!r} is there already, with the columns {topic.definition.schemas[-1]}")


@commands.command("list")
def list_topics(
    context: typer.Context,
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="Such as 'orders.*'.")] = "*",
    show_all: Annotated[bool, typer.Option("--all", help="Dead letters too.")] = False,
    as_json: Json = False,
    log_url: LogUrl = None,
) -> None:
    """List topics, and how much is in them.

    \b
    Example:
      penstock topic list 'orders.*'
    """
    from penstock.errors import CorruptionError

    with open_log(context, log_url) as log:
        found = []
        for name in log.topics(pattern, dead=show_all):
            line: dict[str, Any] = {"topic": name, "partitions": None, "records": None, "bytes": None, "damaged": False}
            try:
                topic = log.topic(name)
                parts = [_partition(partition) for partition in topic.partitions]
                line |= {
                    "partitions": len(parts),
                    "records": sum(part["records"] for part in parts),
                    "bytes": None if None in (sizes := [part["bytes"] for part in parts]) else sum(sizes),
                    "key": list(topic.definition.key),
                    "event_time": topic.definition.event_time,
                }
            except CorruptionError:
                line["damaged"] = True
            found.append(line)
    if as_json:
        print_json(found)
        return
    rows = [
        (line["topic"], line["partitions"], line["records"] if not line["damaged"] else "damaged: penstock log check",
         _size(line["bytes"]), ", ".join(line.get("key", [])) or None,
         line.get("event_time"))
        for line in found
    ]  # fmt: skip
    print_table(["topic", "partitions", "records", "size", "key", "event time"], rows)


@commands.command()
def show(context: typer.Context, name: Name, as_json: Json = False, log_url: LogUrl = None) -> None:
    """Show a topic: its settings, its schema versions, its partitions and who reads it.

    \b
    Example:
      penstock topic show access
    """
    with open_log(context, log_url) as log:
        topic = log.topic(name)
        about = _about(topic)
        partitions = [_partition(partition) for partition in topic.partitions]
        groups = _groups(log, topic)
    if as_json:
        print_json({**about, "partitions": partitions, "groups": groups})
        return
    print_table(["setting", "value"], [(setting, value) for setting, value in about.items() if setting != "schemas"])
    print()
    print_table(["version", "columns"], list(enumerate(about["schemas"])), title="schema")
    print()
    print_table(
        ["partition", "start", "end", "records", "size", "sealed", "hot", "arrived"],
        [
            (part["partition"], part["start"], part["end"], part["records"], _size(part["bytes"]), part["sealed"],
             part["hot"], span_text(*part["arrived_us"]))
            for part in partitions
        ],
        title="partitions",
    )  # fmt: skip
    if groups:
        print()
        print_table(
            ["group", "members", "lag", "committed"],
            [
                (group["group"], group["members"], group["lag"],
                 ", ".join(f"{number}: {offset}" for number, offset in group["committed"].items()))
                for group in groups
            ],
            title="groups",
        )  # fmt: skip


@commands.command("schema")
def show_schema(
    context: typer.Context,
    name: Name,
    as_avro: Annotated[bool, typer.Option("--avro", help="As the Avro schema of its values, in JSON.")] = False,
    version: Annotated[int | None, typer.Option(help="Of this version, from 0 on; without it, the current.")] = None,
    log_url: LogUrl = None,
) -> None:
    """Print the columns of a topic: in Spark DDL, or as the Avro schema that other programs read and write it with.

    \b
    Example:
      penstock topic schema access --avro > access.avsc
    """
    from penstock.errors import CommandRefused
    from penstock.events.avro_schema import avro_schema, names_unfit_for_avro

    with open_log(context, log_url) as log:
        definition = log.topic(name).definition
    known = len(definition.schemas)
    chosen = definition.schema_version if version is None else version
    if not 0 <= chosen < known:
        raise CommandRefused(
            f"topic {name!r} has no schema version {chosen}",
            f"it has {known}, from 0 to {known - 1}",
            f"to see them: penstock topic show {name}",
        )
    if not as_avro:
        print(definition.schemas[chosen])
        return
    schema = definition.schema_of(chosen)
    for unfit in names_unfit_for_avro(schema):
        raise CommandRefused(
            f"topic {name!r} has no Avro schema",
            f"Avro could not have the name {unfit!r}: letters, digits and _ only, and no digit first",
            f"without --avro its columns are printed in Spark DDL: penstock topic schema {name}",
        )
    print_json(avro_schema(name, schema))


@commands.command()
def alter(
    context: typer.Context,
    name: Name,
    schema: Annotated[str | None, typer.Option(help="All columns in Spark DDL; old ones may only widen.")] = None,
    add_column: Annotated[list[str] | None, typer.Option(help="A further column: 'agent string'. May repeat.")] = None,
    lateness: Lateness = None,
    retention_age: RetentionAge = None,
    retention_bytes: RetentionBytes = None,
    segment_bytes: SegmentBytes = None,
    compact: Annotated[
        bool | None, typer.Option("--compact/--no-compact", help="Keep only the newest of a key.")
    ] = None,
    log_url: LogUrl = None,
) -> None:
    """Change a topic. A schema may only grow; 'none' takes a retention away.

    \b
    Example:
      penstock topic alter access --add-column 'agent string' --retention-age 30d
    """
    from penstock.events.schema import format_ddl

    changes: dict[str, Any] = {"schema": schema, "lateness": lateness, "compact": compact}
    if retention_age is not None:
        changes["retention_age"] = None if retention_age == NONE else retention_age
    if retention_bytes is not None:
        changes["retention_bytes"] = None if retention_bytes == NONE else parse_size(retention_bytes)
    if segment_bytes is not None:
        changes["segment_bytes"] = parse_size(segment_bytes)
    with open_log(context, log_url) as log:
        topic = log.topic(name)
        if add_column:
            changes["schema"] = ", ".join([schema or format_ddl(topic.schema), *add_column])
        before = topic.definition
        after = topic.alter(**changes)
    if after == before:
        print(f"topic {name!r} is as it was")
    else:
        grown = f"; its columns are now {after.schemas[-1]}" if after.schemas != before.schemas else ""
        print(f"topic {name!r} is changed{grown}")


@commands.command()
def delete(
    context: typer.Context,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    log_url: LogUrl = None,
) -> None:
    """Delete a topic with all its records. Asks first; its dead letters stay.

    \b
    Example:
      penstock topic delete access --yes
    """
    from penstock.errors import CommandRefused, CorruptionError

    with open_log(context, log_url) as log:
        topic = log.topic(name)
        if not yes:
            if not is_terminal():
                raise CommandRefused(
                    f"topic {name!r} was not deleted",
                    "there is no terminal to ask on",
                    "to delete it without asking: --yes",
                )
            try:
                records = f"{sum(_partition(partition)['records'] for partition in topic.partitions):,} records"
            except CorruptionError:
                records = "damaged records"
            if not typer.confirm(f"delete topic {name!r} with {records} for ever?"):
                raise typer.Exit(1)
        log.delete(name)
    print(f"topic {name!r} is deleted")


def _about(topic: Topic) -> dict[str, Any]:
    from penstock.durations import format_duration

    definition = topic.definition
    age, size = definition.retention_age, definition.retention_bytes
    return {
        "topic": definition.name,
        "id": definition.id,
        "key": ", ".join(definition.key) or None,
        "event_time": definition.event_time,
        "lateness": format_duration(definition.lateness),
        "retention_age": None if age is None else format_duration(age),
        "retention_bytes": size,
        "segment_bytes": definition.segment_bytes,
        "compact": definition.compact,
        "durability": definition.durability,
        "values": definition.values,
        "schemas": list(definition.schemas),
    }


def _partition(partition: Partition) -> dict[str, Any]:
    """What one partition holds, as numbers."""
    found = partition.describe()
    return {"partition": partition.number, **asdict(found), "arrived": [moment(us) for us in found.arrived_us]}


def _size(size: int | None) -> str | None:
    return None if size is None else bytes_text(size)


def _groups(log: Log, topic: Topic) -> list[dict[str, Any]]:
    """The consumer groups that read this topic, and how far behind they are."""
    found = []
    for name in log.groups.names():
        status = log.groups.status(name)
        mine = [each for each in status.partitions if each.topic == topic.name]
        if mine:
            found.append(
                {
                    "group": name,
                    "members": sum(member.why_dead is None for member in status.members),
                    "lag": sum(each.lag for each in mine),
                    "committed": {each.partition: each.committed for each in mine},
                }
            )
    return found
