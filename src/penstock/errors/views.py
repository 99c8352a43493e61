"""What can go wrong where views are kept: who may write them, and what is there."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from penstock.errors.base import PenstockError, did_you_mean
from penstock.redacted import redacted_url


class ViewsError(PenstockError):
    """Something about the views that are stored, or the database that holds them."""


class PipelineOwned(ViewsError):
    """Another run is working on this pipeline; two would undo each other's work. Nothing was changed."""

    is_retryable = True

    def __init__(self, pipeline: str, pid: int, host: str, since_us: int, renewed_ago: timedelta) -> None:
        self.pipeline = pipeline
        self.pid = pid
        self.host = host
        self.since_us = since_us
        self.renewed_ago = renewed_ago
        super().__init__(
            f"penstock: pipeline {pipeline!r} is being run already\n"
            f"  by process {pid} on {host}, since {_moment(since_us)}; "
            f"its last sign of life was {renewed_ago.total_seconds():.1f} s ago\n"
            "  only one run at a time may own a pipeline; nothing was changed\n"
            f"  stop that one first (kill {pid}), or wait: a run that is gone is replaced once its lease ran out"
        )


class OwnershipLost(ViewsError):
    """Another run has taken the pipeline over while this one gave no sign of life. Nothing of this step was stored."""

    def __init__(self, pipeline: str, epoch: int, *, pid: int | None, host: str | None, since_us: int | None) -> None:
        self.pipeline = pipeline
        self.epoch = epoch
        self.pid = pid
        self.host = host
        self.since_us = since_us
        if pid is not None and host is not None and since_us is not None:
            by = f"process {pid} on {host} has taken it over at {_moment(since_us)}"
        else:
            by = "it was taken over and given back by somebody else, or its database was replaced"
        super().__init__(
            f"penstock: this run does not own pipeline {pipeline!r} any more\n"
            f"  {by}; this run had epoch {epoch} and was silent for longer than its lease\n"
            "  nothing of its last step was stored; the other run goes on where the last whole step ended\n"
            "  nothing is to be done; if runs often lose their pipeline, the machine or the database is overloaded"
        )


class UnknownView(ViewsError):
    """No view of that name is stored here."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name = name
        self.known = tuple(known)
        there = f"known views: {', '.join(known)}" if known else "there are no views here yet"
        super().__init__(
            f"penstock: nothing is stored as view {name!r}\n"
            f"  {there}{did_you_mean(name, known)}\n"
            "  views are made by the first run: penstock run APP.py; to list them: penstock view list"
        )


class ViewTaken(ViewsError):
    """Two pipelines of one database want a view of the same name, and people could read only one."""

    def __init__(self, name: str, pipeline: str, other: str) -> None:
        self.name = name
        self.pipeline = pipeline
        self.other = other
        super().__init__(
            f"penstock: pipeline {pipeline!r} cannot keep a view {name!r}\n"
            f"  pipeline {other!r} keeps a view of that name in the same database; nothing was changed\n"
            f"  give one of them another name, or a database of its own ([views] url), or drop the other: "
            f"penstock view drop {name}"
        )


class StoreUrlError(ViewsError):
    """The address of the database of views is not one we know."""

    def __init__(self, url: str, found: str | None = None) -> None:
        self.url = redacted_url(url)
        super().__init__(
            f"views: cannot open {self.url!r}{f': {found}' if found else ''}\n"
            "  expected: sqlite:PATH, such as sqlite:./data/views.db, or postgresql://USER@HOST/DATABASE\n"
            '  set it with PENSTOCK_VIEWS_URL or [views] url = "..." in penstock.toml'
        )


class StoreTooOld(ViewsError):
    """The database is older than what keeps views safely."""

    def __init__(self, database: str, found: str, needed: str, why: str, remedy: str) -> None:
        self.database = database
        self.found = found
        self.needed = needed
        super().__init__(
            f"views: {database} {found} is too old to keep views\n  needed: {needed} or newer; {why}\n  {remedy}"
        )


class StoreUnavailable(ViewsError):
    """The database cannot be reached, is busy, or went away. Nothing of the transaction was stored.

    Only where the answer to a COMMIT was lost (`is_outcome_unknown`) may it be stored: read the fence to know.
    """

    def __init__(
        self, place: str, cause: BaseException | str, *, is_retryable: bool = True, is_outcome_unknown: bool = False
    ) -> None:
        self.place = place
        self.cause = cause
        self.is_retryable = is_retryable
        self.is_outcome_unknown = is_outcome_unknown
        what = "the answer to a commit was lost" if is_outcome_unknown else "nothing of this transaction was stored"
        todo = "it can be tried again" if is_retryable else "look at the database first; trying again will not help"
        super().__init__(
            f"views: the database {place} does not answer as it should\n  {_first_line(cause)}\n  {what}; {todo}"
        )


class RowsReplaced(ViewsError):
    """A table that is in the catalog was dropped before it could be read: another generation is read by now."""

    def __init__(self, place: str, cause: BaseException | str) -> None:
        self.place = place
        super().__init__(
            f"views: what was read in {place} was replaced meanwhile\n  {_first_line(cause)}\n"
            "  nothing is wrong with the views: read again"
        )


class StoreFull(StoreUnavailable):
    """No space is left where the database is. Nothing of the transaction was stored."""

    def __init__(self, place: str, cause: BaseException | str) -> None:
        super().__init__(place, cause)
        text = (
            f"views: no space is left for {place}\n"
            f"  {_first_line(cause)}\n"
            "  nothing of this transaction was stored, and everything stored before is whole\n"
            "  make room on that disk; a run goes on by itself at its next step"
        )
        self.args = (text,)


class StoreNotTrusted(StoreUnavailable):
    """TLS was asked for, and the server is not who it should be, or has none. Nothing was said to it."""

    def __init__(self, place: str, cause: BaseException | str) -> None:
        super().__init__(place, cause, is_retryable=False)
        text = (
            f"views: the database {place} cannot be trusted\n"
            f"  {_first_line(cause)}\n"
            "  nothing was said to it but hello\n"
            "  expected: a certificate for that host, signed by an authority of the file that the address names: "
            "postgresql://...?sslmode=verify-full&sslrootcert=FILE"
        )
        self.args = (text,)


class FenceMoved(StoreUnavailable):
    """The views are further than this run believes. Nothing of the transaction was stored."""

    def __init__(self, pipeline: str, set_name: str, number: int) -> None:
        self.pipeline = pipeline
        self.set_name = set_name
        self.number = number
        super().__init__(f"of pipeline {pipeline!r}", "its fence has moved")
        text = (
            f"views: the fence of view {set_name!r} of pipeline {pipeline!r} (generation {number}) has moved\n"
            "  expected: the fence that this step began at; found: another, or the generation is gone\n"
            "  nothing of this step was stored; a commit whose answer was lost came through after all\n"
            "  a stream goes on from there by itself; else start a new run"
        )
        self.args = (text,)


class ViewNameTaken(ViewsError):
    """Something that Penstock did not make has the name of a view already."""

    def __init__(self, name: str, found: str, place: str) -> None:
        self.name = name
        self.found = found
        super().__init__(
            f"views: people cannot read view {name!r} under its name\n"
            f"  {place} has a {found} of that name, which Penstock did not make; it was left as it is\n"
            "  rename the view or that one, or keep views in a database of their own ([views] url)"
        )


class RowsRefused(ViewsError):
    """Rows that break a rule of their table, such as a second one for the same key. Nothing was stored."""

    def __init__(self, table: str, cause: BaseException | str) -> None:
        self.table = table
        super().__init__(
            f"views: table {table!r} cannot take these rows\n  {_first_line(cause)}\n"
            "  nothing of this transaction was stored"
        )


class QueryRefused(ViewsError):
    """A query that cannot be run, or that would change something."""

    def __init__(self, sql: str, cause: BaseException | str) -> None:
        self.sql = sql
        super().__init__(
            f"views: this query was refused: {_first_line(cause)}\n  {' '.join(sql.split())[:200]}\n"
            "  expected: one SELECT over the views; to see which there are: penstock view list"
        )


class KeyValueError(ViewsError):
    """A value that cannot be one of the key's columns."""

    def __init__(self, view: str, key: Sequence[str], value: str, found: str, column: str | None = None) -> None:
        self.view = view
        self.key = tuple(key)
        self.value = value
        self.column = column
        named = ", ".join(key) if key else "none"
        super().__init__(
            f"views: {value!r} does not fit the key of view {view!r}\n"
            f"  {found}; its key: {named}\n"
            "  expected: values in the order of the key, or COLUMN=VALUE; times as 2026-01-01T12:00:00Z, windows as "
            "their start or START..END, NULL for no value"
        )


class UnknownViewColumn(ViewsError):
    """The view has no column of that name."""

    def __init__(self, view: str, name: str, known: Sequence[str]) -> None:
        self.view = view
        self.name = name
        self.known = tuple(known)
        super().__init__(
            f"views: view {view!r} has no column {name!r}\n  its columns: {', '.join(known)}{did_you_mean(name, known)}"
        )


class ViewsConnected(ViewsError):
    """Views that read one another are kept together, and dropped together. Nothing was dropped."""

    def __init__(self, view: str, others: Sequence[str], together: Sequence[str]) -> None:
        self.view = view
        self.others = tuple(others)
        super().__init__(
            f"views: view {view!r} cannot be dropped alone\n"
            f"  it is kept together with {', '.join(others)}, which read it or which it reads; nothing was dropped\n"
            f"  to drop them all: penstock view drop {' '.join(together)}"
        )


class ExportFormatError(ViewsError):
    """A file whose name does not tell how to write it."""

    def __init__(self, file: str, known: Sequence[str]) -> None:
        self.file = file
        super().__init__(
            f"views: cannot export to {file!r}\n  expected: a name that ends in {' or '.join(known)}\n"
            "  nothing was written"
        )


class NoSuchRow(ViewsError):
    """The view has no row with that key."""

    def __init__(self, view: str, key: str, near: Sequence[str], rows: int) -> None:
        self.view = view
        self.key = key
        self.near = tuple(near)
        self.rows = rows
        there = f"keys near to it: {'; '.join(near)}" if near else f"the view has {rows:,} rows"
        super().__init__(
            f"views: view {view!r} has no row {key}\n  {there}\n  to look at its rows: penstock view show {view}"
        )


def _first_line(cause: BaseException | str) -> str:
    lines = str(cause).strip().splitlines()
    return lines[0] if lines else type(cause).__name__


def _moment(us: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)).isoformat(sep=" ", timespec="seconds")
