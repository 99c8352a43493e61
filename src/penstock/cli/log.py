"""penstock log: look after what is on disk."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import Json, LogUrl, is_terminal, open_folder, parse_place
from penstock.cli.output import bytes_text, hours_text, moment, print_json, print_table, span_text

if TYPE_CHECKING:
    from penstock.check.findings import PartitionReport
    from penstock.check.inspection import PieceSeen
    from penstock.log.log import Log

commands = typer.Typer(help="Look after what is on disk.", no_args_is_help=True, rich_markup_mode=None)

Place = Annotated[str | None, typer.Argument(metavar="TOPIC[/PARTITION]", help="All topics without it.")]
OneTopic = Annotated[str | None, typer.Argument(metavar="TOPIC", help="All topics without it.")]


@commands.command()
def check(
    context: typer.Context,
    place: Place = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Mend what can be mended; asks before anything is lost.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --repair: do not ask.")] = False,
    as_json: Json = False,
    log_url: LogUrl = None,
) -> None:
    """Check that everything is whole: checksums, row counts, offsets, arrivals. Exit code 1 if something is damaged.

    A check changes nothing, and others may write meanwhile.

    \b
    Example:
      penstock log check orders/3
      penstock log check orders/3 --repair
    """
    from penstock.check.checking import check_log

    topic, partition = (None, None) if place is None else parse_place(place)
    with open_folder(context, log_url) as log:
        reports = list(check_log(log, topic, partition))
        mended = _repair(log, reports, yes=yes, is_quiet=as_json) if repair else []
        if mended:
            reports = list(check_log(log, topic, partition))
    if as_json:
        print_json(
            {"damaged": sum(not each.is_whole for each in reports), "partitions": [_document(each) for each in reports],
             "mended": [asdict(each) for each in mended]}
        )  # fmt: skip
    else:
        _print_reports(reports)
    if not all(report.is_whole for report in reports):
        raise typer.Exit(1)


@commands.command()
def inspect(
    context: typer.Context,
    place: Annotated[str, typer.Argument(metavar="TOPIC/PARTITION", help="Such as orders/3.")],
    at: Annotated[
        int | None, typer.Option(metavar="OFFSET", help="The frame around this offset, with its records.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many frames, or records.")] = 50,
    as_json: Json = False,
    log_url: LogUrl = None,
) -> None:
    """Look into a partition: files, frames and row groups; with --at the records around an offset. Changes nothing.

    \b
    Example:
      penstock log inspect orders/3 --at 4711
    """
    from penstock.check.inspection import Inspection
    from penstock.errors import CommandRefused

    topic, number = parse_place(place)
    if number is None:
        raise typer.BadParameter(f"{place!r} names no partition; expected TOPIC/PARTITION, such as {place}/0")
    with open_folder(context, log_url) as log:
        found = log.topic(topic)
        if number >= len(found.partitions):
            raise CommandRefused(
                f"there is no partition {place}",
                f"{topic} has partitions 0 to {len(found.partitions) - 1}",
                "name one of them",
            )
        inspection = Inspection(found.directory / str(number), found.definition)
        if at is not None:
            piece = inspection.piece_at(at)
            batch = inspection.records_of(piece)
            records = [event for event in batch.to_pylist() if event["_offset"] >= at][:limit]
            if as_json:
                print_json({"piece": _piece_document(piece), "records": records})
            else:
                _print_pieces([piece])
                for event in records:
                    print(json.dumps(event, ensure_ascii=False, default=str))
            return
        segments = inspection.segments()
        pieces = [piece for _, piece in zip(range(limit), inspection.pieces(), strict=False)]
    if as_json:
        documents = [{**vars(segment), "path": str(segment.path)} for segment in segments]
        print_json({"segments": documents, "pieces": [_piece_document(piece) for piece in pieces]})
        return
    print_table(
        ["file", "kind", "start", "stop", "records", "size", "pieces", "arrived"],
        [
            (each.path.name, each.kind, each.start, each.stop, each.records, bytes_text(each.bytes), each.pieces,
             span_text(*(each.arrived_us or (None, None))))
            for each in segments
        ],
    )  # fmt: skip
    print()
    _print_pieces(pieces)
    total = sum(each.pieces for each in segments)
    if total > len(pieces):
        print(f"... the first {len(pieces)} pieces of about {total:,}; more with --limit, or --at OFFSET")


@commands.command()
def seal(
    context: typer.Context,
    topic: OneTopic = None,
    active: Annotated[
        bool, typer.Option("--active/--closed", help="Also the segments that are being written, or only closed ones.")
    ] = False,
    as_json: Json = False,
    log_url: LogUrl = None,
) -> None:
    """Rewrite hot segments as Parquet. Happens by itself in every process that writes; here it happens now.

    \b
    Example:
      penstock log seal access --active
    """
    with open_folder(context, log_url) as log:
        sealed = [{"topic": name, "sealed": log.topic(name).seal(active=active)} for name in _topics(log, topic)]
    if as_json:
        print_json(sealed)
    else:
        print_table(["topic", "segments sealed"], [(each["topic"], each["sealed"]) for each in sealed])


@commands.command()
def retain(context: typer.Context, topic: OneTopic = None, as_json: Json = False, log_url: LogUrl = None) -> None:
    """Drop what retention says, and outdated records of compacted topics. Happens by itself too; here it happens now.

    \b
    Example:
      penstock log retain access
    """
    lines: list[dict[str, Any]] = []
    with open_folder(context, log_url) as log:
        for name in _topics(log, topic):
            found = log.topic(name)
            removed = found.retain()
            compacted = {each.partition: each.before - each.after for each in found.compact()}
            lines += [{"topic": name, **vars(each), "compacted": compacted.get(each.partition, 0)} for each in removed]
    if as_json:
        print_json(lines)
        return
    print_table(
        ["topic", "partition", "segments dropped", "records", "size", "compacted", "first offset"],
        [
            (each["topic"], each["partition"], each["segments"], each["records"], bytes_text(each["bytes"]),
             each["compacted"], each["start_offset"])
            for each in lines
        ],
    )  # fmt: skip


def _topics(log: Log, topic: str | None) -> list[str]:
    return log.topics(dead=True) if topic is None else [topic]


def _repair(log: Log, reports: list[PartitionReport], *, yes: bool, is_quiet: bool) -> list[Any]:
    """Repairs what the reports call for, and says what was done."""
    from penstock.check.repair import repair_partition
    from penstock.errors import CommandRefused
    from penstock.log.definition import read_definition

    def confirm(question: str) -> bool:
        if yes:
            return True
        if not is_terminal():
            raise CommandRefused(
                question.partition("\n")[0], "there is no terminal to ask on", "to go on all the same: --yes"
            )
        return typer.confirm(question, err=True)

    done = []
    for report in reports:
        subjects = {finding.subject for finding in report.findings if finding.is_damage or finding.subject == "end"}
        if "definition" in subjects or "folder" in subjects or not subjects:
            continue
        done += repair_partition(report.directory, read_definition(report.directory.parent), confirm, clock=log.clock)
    if not is_quiet:
        for mended in done:
            lost = f" ({mended.lost:,} records lost)" if mended.lost else ""
            print(f"{mended.place}: {mended.path.name}: {mended.what}{lost}")
        print("" if done else "nothing to repair")
    return done


def _print_reports(reports: list[PartitionReport]) -> None:
    print_table(
        ["partition", "start", "end", "records", "size", "sealed", "hot", "state"],
        [
            (each.place, each.start, each.end, each.records, bytes_text(each.bytes), each.sealed, each.hot,
             "whole" if each.is_whole else "DAMAGED")
            for each in reports
        ],
    )  # fmt: skip
    for report in reports:
        for finding in report.findings:
            print(f"\n{finding.text()}")
    damaged = sum(not report.is_whole for report in reports)
    print(f"\n{len(reports)} checked, {damaged} damaged" if damaged else f"\n{len(reports)} checked, all whole")


def _document(report: PartitionReport) -> dict[str, Any]:
    findings = [{**vars(finding), "path": str(finding.path)} for finding in report.findings]
    return {**vars(report), "directory": str(report.directory), "is_whole": report.is_whole, "findings": findings}


def _print_pieces(pieces: list[PieceSeen]) -> None:
    print_table(
        ["file", "kind", "at", "start", "stop", "records", "size", "arrived", "event time", "producer", "epoch"],
        [
            (each.path.name, each.kind, each.position, each.start, each.stop, each.records, bytes_text(each.bytes),
             span_text(*each.arrived_us) if each.records else "-", hours_text(each.hours) or "-", _producer(each),
             each.epoch)
            for each in pieces
        ],
    )  # fmt: skip


def _producer(piece: PieceSeen) -> str:
    if piece.producer is None or piece.sequences is None:
        return "-"
    return f"{piece.producer[:8]} epoch {piece.producer_epoch}, {piece.sequences[0]} .. {piece.sequences[1]}"


def _piece_document(piece: PieceSeen) -> dict[str, Any]:
    arrived = [moment(us) for us in piece.arrived_us]
    return {**vars(piece), "path": str(piece.path), "arrived": arrived, "hours": list(piece.hours)}
