"""A set of views in motion: one generation, its fence, and the next step.

Views that are connected through views share a fence and are written in one transaction, so two of them never contradict
each other.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.alerts.compiled import Alerts, CompiledAlert
from penstock.alerts.looking import Found, look
from penstock.alerts.telling import tell
from penstock.errors import KeptRowsLost, StepFailed
from penstock.log.log import Log
from penstock.log.partition import Offsets
from penstock.log.topic import Topic
from penstock.modes.ahead import Ahead, Slices
from penstock.modes.set_aside import SetAside, records_behind, send_letters
from penstock.upkeep.aside import places_of
from penstock.upkeep.changes import KEY, Changes
from penstock.upkeep.commit import (
    Committed,
    ReadyStep,
    RowsUnfit,
    Written,
    dead_topic,
    ready_kept,
    ready_rows,
    ready_step,
    write_kept,
    write_rows,
    write_step,
)
from penstock.upkeep.inputs import TopicInput, ViewInput
from penstock.upkeep.kept_rows import KeptChange
from penstock.upkeep.recent_rows import RecentRows, Shelves, wrote_all
from penstock.upkeep.redo import RedoGroups, RedoWindows
from penstock.upkeep.slices import Slice
from penstock.upkeep.step import Foreseeing, Step, Work, finish, run_together
from penstock.views.catalog import Catalog, Counters, Generation, KnownView, Layers
from penstock.views.fence import Fence, Origin
from penstock.views.keys import key_order
from penstock.views.outbox import enqueue
from penstock.views.stack import Stack
from penstock.views.tables import In
from penstock.views.values import one_array

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.upkeep.compiled import CompiledView
    from penstock.views.owner import Owner
    from penstock.views.store import Store, StoredTable, Transaction, Upserts

logger = logging.getLogger("penstock.modes")

Cut = Mapping[str, Mapping[int, int]]
"""By topic, one offset per partition."""

BIG_ROWS = 200_000
"""From so many new records on, views that are redone may be computed as a whole: see `is_big`."""
PIECE_ROWS = 20_000
"""So many rows are written in one transaction where nobody reads them yet."""
ONE_TASK_ROWS = 1_000_000
"""Up to so many records are aggregated by one task where several steps are computed at once."""
FILL_ROWS = 1_000_000
"""So many kept rows are written in one transaction when they are made from what is there already.

Each of them touches nearly all of the table, so that few large ones write far less than many small ones.
"""


@dataclass(frozen=True)
class StepReport:
    """What one step did, for people and programs that watch."""

    set: str
    rows: int
    """Records read."""
    seconds: float
    late: Mapping[str, int]
    corrected: Mapping[str, int]
    changed: Mapping[str, int]
    unfit: int
    fence: Fence
    small: Mapping[str, bool] = field(default_factory=dict)
    """By view that was computed, whether that was in the driver (small plans) or by Spark's scheduler."""


class RunningSet:
    """The views of one set, in one generation. One thread steps it at a time."""

    def __init__(
        self,
        views: Sequence[CompiledView],
        generation: Generation,
        *,
        log: Log,
        store: Store,
        spark: SparkSession,
        owner: Owner | None,
        alerts: Alerts | None = None,
        shelves: Shelves | None = None,
    ) -> None:
        self.views = tuple(views)
        self.generation = generation
        self._log = log
        self._store = store
        self._spark = spark
        self._owner = owner
        self._alerts = alerts or Alerts()
        self._recent = RecentRows(store, shelves)
        self.last: StepReport | None = None
        """What its last step did."""
        self.topics: dict[str, Topic] = {name: log.topic(name) for view in views for name in view.topics}
        self.left_out: Counter[str] = Counter()
        """By view, how many records and rows could not be computed or stored: they are dead letters."""

    @property
    def name(self) -> str:
        return self.generation.set

    @property
    def fence(self) -> Fence:
        return self.generation.fence

    @property
    def is_new(self) -> bool:
        """No step was made yet, not even an empty one."""
        return not self.fence.offsets and not self.fence.is_static

    def ends(self) -> dict[str, Offsets]:
        """How far the log has come."""
        return {name: topic.end() for name, topic in self.topics.items()}

    def next_cut(self, until: Cut, max_rows: int | None, after: Cut | None = None) -> dict[str, Offsets]:
        """Where the next step ends, or the one after the cut `after`: at `until`, or after `max_rows` records."""
        if max_rows is None:
            return {name: dict(until[name]) for name in self.topics}
        share = max(1, max_rows // max(1, len(self.topics)))
        begun = self.fence.offsets if after is None else after
        return {
            name: topic.cut(begun.get(name, {}), max_rows=share, until=dict(until[name]))
            for name, topic in self.topics.items()
        }

    def lag(self, ends: Cut) -> int:
        """How many records of its own topics there are beyond the fence; `ends` may name others too."""
        return self.fence.lag_behind({name: ends[name] for name in self.topics})

    def step(self, stop: Cut) -> StepReport:
        """Takes the views to the cut `stop`, in one transaction."""
        [report] = finish(step_together([(self, stop)]))
        return report

    def begin(self, stop: Cut, shared: Slices, ahead: Ahead | None = None) -> Work[Step]:
        """A step to the cut `stop`, not yet run. Slices that another set reads as well are `shared`."""
        slices = self._slices(self.fence.offsets, stop, shared)
        is_big = self._is_big(sum(part.rows for part in slices.values()))
        if not is_big:
            yield from self.fill_kept_rows()
        ready = ahead.ready_for(slices, self.views) if ahead is not None else {}
        self._recent.stand_at(self.generation)
        return Step(self._spark, self._recent, self.generation.layers, slices, self.is_new, is_big, ready=ready)

    def look_ahead(self, start: Cut, stop: Cut, ahead: Ahead) -> None:
        """Begins to compute what a later step from `start` to `stop` will ask for, where that is worth it."""
        slices = self._slices(start, stop, ahead.slices)
        in_one_task = sum(part.rows for part in slices.values()) <= ONE_TASK_ROWS
        step = Step(self._spark, self._store, self.generation.layers, slices, in_one_task=in_one_task)
        if all(part.is_small for part in step.slices.values()):
            return
        for view in self.views:
            # A view over a view asks for what that one's step will have changed.
            if isinstance(view.keeper, Foreseeing) and not view.upstream:
                ahead.begin(view.name, step, view.keeper)

    def _slices(self, start: Cut, stop: Cut, shared: Slices) -> dict[str, Slice]:
        found = {}
        for name, topic in self.topics.items():
            begun = _started(topic, start.get(name))
            place = (name, *begun.items(), *stop[name].items())
            if place not in shared:
                shared[place] = Slice(topic, begun, dict(stop[name]))
            found[name] = shared[place]
        return found

    def write_first_rows(self, step: Step) -> Work[None]:
        """Writes the rows of the first step of a generation that nobody reads yet, in many short transactions.

        Whoever is live beside it gets a turn between them. Until `write` sets the fence, it counts for nothing.
        """
        for view in self.views:
            rows = step.changes[view.name].after
            rows = rows.take(key_order(Stack.of([rows]), [KEY]))
            for start in range(0, rows.num_rows, PIECE_ROWS):
                piece = [(self.generation, view, Changes(rows.schema.empty_table(), rows.slice(start, PIECE_ROWS)))]
                ready = self.ready_rows(piece)
                with self.transaction() as tx:
                    write_rows(tx, piece, ready)
                yield []

    def ready(self, step: Step) -> ReadyStep:
        """A step that has run, to be written: see `ready_step`."""
        stop = {name: part.stop for name, part in step.slices.items()}
        clock = max([self.fence.clock_us, *(part.clock_us for part in step.slices.values())])
        begun = {name: part.start for name, part in step.slices.items()} if self.is_new else self._kept_to
        kept = None if not self._has_kept_rows else stop if not step.is_big else {} if begun == stop else begun
        lateness = {} if self.is_new else self._lateness_us
        closed = {view: self.fence.clock_us - each for view, each in lateness.items()}
        origins = {name: _origin(part, self.fence.origins.get(name)) for name, part in step.slices.items()}
        fence = Fence(stop, clock, kept, origins, is_static=not stop)
        return ready_step(self._store, self.generation, self.views, step, fence, closed=closed)

    def ready_rows(self, written: Written) -> Upserts:
        """The rows of a step, to be written: see the function."""
        return ready_rows(self._store, written)

    def write(self, tx: Transaction, ready: ReadyStep) -> None:
        """Writes a step that has run, but for rows and fence. The set moves on when all is committed: `moved`."""
        write_step(tx, self.generation.pipeline, ready)

    def check_tables(self) -> None:
        """TableChanged if a large static table was written to since it was first read: steps would mix its contents."""
        for table in {table.spec.name: table for view in self.views for table in view.large_tables}.values():
            table.check()

    def look(self, step: Step) -> Work[list[Found]]:
        """What alerts have to say of a step that has run: nothing, unless people read what it changes."""
        alerts: list[CompiledAlert] = [each for view in self.views for each in self._alerts.by_view.get(view.name, ())]
        if not alerts or self.generation.state != "live":
            return []
        return (yield from look(self._spark, alerts, step.changes))

    def told(self) -> None:
        """Somebody has to be told: the transaction that says so is through."""
        self._alerts.on_told()

    def moved(self, done: Committed) -> None:
        """The step is in the database: from here on the next one begins."""
        self._recent.moved_to(done.generation)
        self.generation = done.generation

    def written(self, step: Step) -> list[tuple[RecentRows, StoredTable, Changes]]:
        """What a step wrote, for those who hold rows."""
        return [
            (self._recent, view.shape.table(self.generation.layers), step.changes[view.name]) for view in self.views
        ]

    def leave_out(self, counts: Mapping[str, int]) -> None:
        """Counts what a step left out of each view. The first of a view is worth a warning."""
        for view, count in counts.items():
            if count and not self.left_out[view]:
                topic = dead_topic(self.generation.pipeline, view)
                logger.warning(
                    f"view {view!r}: records that could not be computed, or rows that could not be stored: {count:,}\n"
                    f"  the run goes on without them; to see them: penstock consume {topic}"
                )
        self.left_out.update(counts)

    def corrected_before(self, counters: Mapping[str, Counters]) -> None:
        """Counts as corrected what another generation has counted that this one replaces."""
        counted = {
            name: replace(each, corrected=max(each.corrected, counters[name].corrected))
            for name, each in self.generation.counters.items()
        }
        with self.transaction() as tx:
            self.generation = Catalog(tx.connection).set_fence(self.generation, self.fence, counted)

    def transaction(self) -> AbstractContextManager[Transaction]:
        """A transaction that only the owner of the pipeline can make."""
        return self._store.transaction(self._owner)

    @cached_property
    def _lateness_us(self) -> dict[str, int]:
        """For each view the greatest lateness among the topics that it is made of, in microseconds."""
        found: dict[str, int] = {}
        for view in self.views:  # Each after those that it is made of.
            own = [self.topics[name].definition.lateness // timedelta(microseconds=1) for name in view.topics]
            found[view.name] = max([*own, *(found[name] for name in view.upstream)], default=0)
        return found

    # --- rows kept for redos ---

    @property
    def _has_kept_rows(self) -> bool:
        return any(view.kept for view in self.views)

    @property
    def _kept_to(self) -> Cut:
        """How far the kept rows have come in each topic. Where none are kept yet, there was nothing to read either."""
        return self.fence.kept or self.fence.offsets

    def _is_big(self, rows: int) -> bool:
        """Whether a step computes redone views as a whole.

        That reads the whole log, at the speed of Parquet, so it pays where the step is a good part of it. It cannot be
        done once retention has removed the beginning of the log, unless nothing is stored yet.
        """
        if self.is_new:
            return True
        before = sum(offset for offsets in self.fence.offsets.values() for offset in offsets.values())
        if rows < max(BIG_ROWS, before // 4):
            return False
        return all(not any(topic.start().values()) for topic in self.topics.values())

    def fill_kept_rows(self, rows: int | None = None) -> Work[None]:
        """Brings the kept rows up to the fence, where a big step or a batch left them behind, so many at a time."""
        if not self._has_kept_rows or self.fence.kept == self.fence.offsets:
            return
        reached = self._kept_to
        for name, topic in self.topics.items():
            if any(start > reached.get(name, {}).get(number, 0) for number, start in topic.start().items()):
                raise KeptRowsLost([view.name for view in self.views if view.kept], name)
        while True:
            stop = {
                name: topic.cut(reached.get(name, {}), max_rows=rows or FILL_ROWS, until=self.fence.offsets[name])
                for name, topic in self.topics.items()
            }
            changes = []
            for view in self.views:
                changes += yield from self._missing(view, reached, stop)
            is_done = stop == {name: dict(offsets) for name, offsets in self.fence.offsets.items()}
            if is_done:
                for view in self.views:
                    changes += yield from self._missing_of_views(view)
            fence = replace(self.fence, kept=stop)
            ready = [ready_kept(self._store, change) for change in changes]
            with self.transaction() as tx:
                for kept in ready:
                    write_kept(tx, kept)
                Catalog(tx.connection).set_fence(self.generation, fence, self.generation.counters)
            self.generation = replace(self.generation, fence=fence)
            reached = stop
            if is_done:
                return

    def _missing(self, view: CompiledView, start: Cut, stop: Cut) -> Work[list[KeptChange]]:
        """Records of topics that are not among the kept rows yet."""
        found: list[KeptChange] = []
        if isinstance(view.keeper, RedoWindows | RedoGroups):
            step = self.reading_step(start, stop)
            for name, each in view.inputs.items():
                if isinstance(each, TopicInput):
                    found.append((yield from view.keeper.keep(step, name, each.new_rows(step))))
        return found

    def _missing_of_views(self, view: CompiledView) -> Work[list[KeptChange]]:
        """Rows of upstream views as of the fence: they are written anew, since they may have changed since."""
        found: list[KeptChange] = []
        if not isinstance(view.keeper, RedoGroups):
            return found
        step = self.reading_step(self.fence.offsets, self.fence.offsets)
        for name, each in view.inputs.items():
            if isinstance(each, ViewInput):
                rows = self._store.read(each.shape.table(self.generation.layers))
                change = yield from view.keeper.keep(step, name, rows)
                stale = self._store.read(change.table)
                gone = pc.unique(one_array(stale.column(KEY))) if stale.num_rows else pa.array([], pa.binary(16))
                found.append(replace(change, gone=In(KEY, gone)))
        return found

    def reading_step(self, start: Cut, stop: Cut) -> Step:
        return Step(self._spark, self._store, self.generation.layers, self._slices(start, stop, {}))


def step_together(
    sets: Sequence[tuple[RunningSet, Cut]], ahead: Ahead | None = None, *, in_pieces: bool = False
) -> Work[list[StepReport]]:
    """Takes several sets of one pipeline to their next cuts: jobs and slices shared, all of it in one transaction.

    What was computed `ahead` for just these cuts is not computed again. With `in_pieces` the first rows of a single
    set that nobody reads yet are written in many short transactions.
    """
    began = time.monotonic()
    refused: list[RowsUnfit] = []
    aside: list[SetAside] = []
    while True:
        try:
            steps, written = yield from _try_together(sets, refused, aside, ahead, in_pieces=in_pieces)
            break
        except RowsUnfit as unfit:
            refused.append(unfit)
        except StepFailed as error:
            running, view, stop = next(
                (each, view, stop) for each, stop in sets for view in each.views if view.name == error.view
            )
            step = running.reading_step(running.fence.offsets, stop)
            found = yield from records_behind(error, view, step)
            if found is None or any(each.view == found.view for each in aside):
                raise  # No record explains it.
            aside.append(found)
    seconds = time.monotonic() - began
    wrote_all([each for (running, _), step in zip(sets, steps, strict=True) for each in running.written(step)])
    reports = []
    for (each, _), step, done in zip(sets, steps, written, strict=True):
        each.moved(done)
        rows = sum(part.rows for part in step.slices.values())
        left_out = Counter({view: len(keys) for view, keys in step.unfit.items()})
        left_out.update({one.view: len(one.records) for one in aside})
        mine = {view.name: left_out[view.name] for view in each.views}
        each.leave_out(mine)
        count = sum(mine.values())
        each.last = StepReport(
            each.name, rows, seconds, done.late, done.corrected, done.changed, count, each.fence, step.small
        )
        reports.append(each.last)
    return reports


def _try_together(
    sets: Sequence[tuple[RunningSet, Cut]],
    refused: Sequence[RowsUnfit],
    aside: Sequence[SetAside],
    ahead: Ahead | None,
    *,
    in_pieces: bool,
) -> Work[tuple[list[Step], list[Committed]]]:
    """Runs and writes the steps, without rows and records that were refused before: those go to the dead letters."""
    shared: Slices = {} if ahead is None else dict(ahead.slices)
    unfit = {
        view: pa.concat_arrays([each.keys for each in refused if each.view == view])
        for view in {each.view for each in refused}
    }
    steps: list[Step] = []
    for each, stop in sets:
        step = yield from each.begin(stop, shared, ahead)
        steps.append(replace(step, unfit=unfit, aside={each.view: places_of(each.records) for each in aside}))
    yield from run_together([(step, each.views) for step, (each, _) in zip(steps, sets, strict=True)])
    found = []
    for step, (each, _) in zip(steps, sets, strict=True):
        found.append((yield from each.look(step)))
    for step in steps:
        for part in step.slices.values():
            # Before the transaction: a log may keep one waiting, and a database ends a transaction that does nothing.
            part.measure()
    for each, _ in sets:
        each.check_tables()
    first = sets[0][0]
    is_beginning = in_pieces and len(sets) == 1 and first.is_new and first.generation.state == "building"
    if is_beginning:
        yield from first.write_first_rows(steps[0])
    rows: Written = [
        (each.generation, view, step.changes[view.name])
        for step, (each, _) in zip(steps, sets, strict=True)
        for view in each.views
        if not is_beginning
    ]
    # All that takes time is done before the transaction.
    upserts = first.ready_rows(rows)
    ready = [each.ready(step) for step, (each, _) in zip(steps, sets, strict=True)]
    written = [each.done for each in ready]
    with first.transaction() as tx:
        write_rows(tx, rows, upserts)
        for (each, _), made in zip(sets, ready, strict=True):
            each.write(tx, made)
        before = [each.generation for each, _ in sets]
        Catalog(tx.connection).set_fences([(one, done.generation) for one, done in zip(before, written, strict=True)])
        for letter in refused:
            pipeline = first.generation.pipeline
            enqueue(tx.connection, pipeline, dead_topic(pipeline, letter.view), letter.letters)
        for each, _ in sets:
            send_letters(tx, each.generation, {view.name: view.fingerprint for view in each.views}, aside)
        is_told = [
            tell(
                tx.connection,
                first.generation.pipeline,
                said,
                begun_us=each.fence.clock_us,
                clock_us=done.generation.fence.clock_us,
            )
            for said, (each, _), done in zip(found, sets, written, strict=True)
        ]
    if any(is_told):
        first.told()
    return steps, written


def known_views(views: Sequence[CompiledView], layers: Layers) -> list[KnownView]:
    """How the catalog remembers these views."""
    return [
        KnownView(
            view.name,
            view.fingerprint,
            view.shape.columns,
            view.keeping.how,
            view.spec.key,
            {
                **_named("rows", view.shape.table(layers)),
                **{
                    purpose: name
                    for number, kept in enumerate(view.kept)
                    for purpose, name in _named(f"{kept.purpose} {number}", kept.table(layers)).items()
                },
            },
            {
                "why": view.keeping.why,
                "late": view.spec.late,
                "changelog": view.spec.changelog,
                "topics": view.topics,
                "upstream": view.upstream,
            },
            view.parts,
        )
        for view in views
    ]


def _origin(part: Slice, before: Origin | None) -> Origin:
    """What identifies the topic at the end of a slice; partitions without new records keep what was known."""
    known = {} if before is None else before.arrived_us
    return Origin(part.topic.definition.id, {**known, **part.arrived_us})


def _named(purpose: str, table: StoredTable) -> dict[str, str]:
    """What a table is made of, by what it is for."""
    return dict(zip((purpose, f"{purpose}, speed"), table.names, strict=False))


def _started(topic: Topic, offsets: Offsets | Mapping[int, int] | None) -> Offsets:
    """Where reading begins: at the fence, or at the first record that is left."""
    first = topic.start()
    if offsets is None:
        return first
    return {number: offsets.get(number, start) for number, start in first.items()}
