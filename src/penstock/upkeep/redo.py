"""Redo: the windows or groups that a slice touched are computed again, and replaced.

Which they are is found out from the slice alone. Their other rows come from the kept rows, so a step costs what it
touches. A step that brings a large part of the log computes everything again instead: that is cheaper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.private.prepared import Prepared
from penstock.upkeep.changes import GROUP, KEY, Changes, difference, is_among
from penstock.upkeep.groups import Groups
from penstock.upkeep.inputs import TopicInput, ViewInput
from penstock.upkeep.kept_rows import NO_TIME, TIME, KeptChange, KeptRows, joined_ranges
from penstock.upkeep.kept_windows import TIME_MAX, KeptWindows
from penstock.upkeep.step import Advance, Step, Work
from penstock.upkeep.whole import Whole
from penstock.views.store import Both, In, Ranges
from penstock.views.values import one_array


@dataclass(frozen=True)
class RedoWindows:
    """Keeps a view by its windows: a window that got an event is computed again."""

    whole: Whole
    kept: Mapping[str, KeptWindows]
    """For each input: all of them are topics."""
    length_us: int
    """Of the windows."""

    def advance(self, step: Step) -> Advance:
        """See `Keeper`."""
        if step.is_big:
            return (yield from self.whole.advance(step))
        table = self.whole.shape.table(step.layers)
        topics = {name: each for name, each in self.whole.inputs.items() if isinstance(each, TopicInput)}
        news = {name: self.kept[name].chosen(each.new_rows(step)) for name, each in topics.items()}
        starts = np.unique(np.concatenate([self.kept[name].starts(new, self.length_us) for name, new in news.items()]))
        if len(starts) == 0:
            self._keep(step, news, {})
            return Changes.none(table.schema)
        ranges = joined_ranges([(start, start + self.length_us) for start in starts.tolist()])
        pieces = {
            name: step.stored(kept.table(step.layers), kept.pieces_in(ranges)) for name, kept in self.kept.items()
        }
        frames = {n: each.frame(step, self._rows(n, pieces[n], news[n], ranges)) for n, each in topics.items()}
        [result] = yield [self.whole.prepared.ask(frames)]
        groups = self._groups(starts)
        new = self.whole.rows(result)
        new = new.filter(is_among(one_array(new.column(GROUP)), groups))
        old = step.stored(table, In(GROUP, groups))
        self._keep(step, news, pieces)
        return difference(old, new)

    def _groups(self, starts: npt.NDArray[np.int64]) -> pa.Array:
        """The windows as the view's rows carry them: whole, or by their start."""
        assert self.whole.groups is not None
        [name], [kind] = self.whole.groups.columns, self.whole.groups.kinds
        if pa.types.is_struct(kind):
            pairs = zip((starts, starts + self.length_us), kind, strict=True)
            sides = [pa.array(each).cast(side.type) for each, side in pairs]
            return self.whole.groups.of(pa.table({name: pa.StructArray.from_arrays(sides, fields=list(kind))}))
        return self.whole.groups.of(pa.table({name: pa.array(starts).cast(kind)}))

    def _rows(self, name: str, pieces: pa.Table, new: pa.Table, ranges: list[tuple[int, int]]) -> pa.Table:
        """All rows of one topic in the touched windows: those kept, and those of the slice."""
        kept = self.kept[name]
        rows = pa.concat_tables([kept.rows(pieces), new])
        return rows.filter(_inside(kept.times(rows), ranges))

    def _keep(self, step: Step, news: Mapping[str, pa.Table], pieces: Mapping[str, pa.Table]) -> None:
        step.kept += [self.kept[name].change(step.layers, new, pieces.get(name)) for name, new in news.items()]

    def keep(self, step: Step, name: str, rows: pa.Table) -> Work[KeptChange]:
        """What has to be added to the kept rows of an input for these records."""
        yield from ()
        return self.kept[name].change(step.layers, self.kept[name].chosen(rows))


@dataclass(frozen=True)
class RedoGroups:
    """Keeps a view by groups of its inputs that never meet: a group that changed is computed again."""

    whole: Whole
    groups: Mapping[str, Groups]
    """How to find the group of a row, for each input."""
    named: Mapping[str, Prepared]
    """For inputs whose groups are expressions: the input with those expressions as further columns."""
    kept: Mapping[str, KeptRows]
    horizon: timedelta | None = None

    def advance(self, step: Step) -> Advance:
        """See `Keeper`."""
        if step.is_big:
            return (yield from self.whole.advance(step))
        shape, inputs = self.whole.shape, self.whole.inputs
        table = shape.table(step.layers)
        news: dict[str, _News] = {}
        for name, each in inputs.items():
            news[name] = yield from self._news(step, name, each)
        touched = pc.unique(pa.concat_arrays([part for new in news.values() for part in (new.groups, new.gone_groups)]))
        if len(touched) == 0:
            return Changes.none(table.schema)
        old_rows = {name: self._old_rows(step, name, touched, news) for name in inputs}
        new_rows = {name: news[name].applied_to(old_rows[name]) for name in inputs}
        after_frame = self.whole.prepared.ask({n: e.frame(step, new_rows[n]) for n, e in inputs.items()})
        if shape.has_group and self.horizon is None:
            [result] = yield [after_frame]
            old = step.stored(table, In(GROUP, touched))
            new = self.whole.rows(result)
            # A union with a static table returns rows of other groups too.
            new = new.filter(is_among(one_array(new.column(GROUP)), touched))
        else:
            before_frame = self.whole.prepared.ask({n: e.frame(step, old_rows[n]) for n, e in inputs.items()})
            result, gone = yield [after_frame, before_frame]
            old, new = self.whole.rows(gone), self.whole.rows(result)
        step.kept += [each.change for each in news.values()]
        changes = difference(old, new)
        self._check_free(step, changes)
        if shape.has_group and self.horizon is None:
            return changes
        # What was computed again may differ from what is stored in columns that nobody sees; before is what is stored.
        stored = step.stored(table, In(KEY, one_array(changes.before.column(KEY))))
        return Changes(stored, changes.after)

    def _check_free(self, step: Step, changes: Changes) -> None:
        """A row that is new here must not have the key of one in a group that was not computed again."""
        own, shape = self.whole.groups, self.whole.shape
        if own is not None and set(own.columns) <= set(shape.key):
            return  # Rows of two groups differ in their keys.
        keys, old_keys = (one_array(side.column(KEY)) for side in (changes.after, changes.before))
        added = keys.filter(pc.invert(is_among(keys, old_keys)))
        if len(added):
            shape.check_free(step.stored(shape.table(step.layers), In(KEY, added)), changes)

    def _news(self, step: Step, name: str, each: TopicInput | ViewInput) -> Work[_News]:
        kept = self.kept[name]
        table = kept.table(step.layers)
        if isinstance(each, TopicInput):
            rows = each.new_rows(step)
            groups = yield from self._groups(step, name, each, rows)
            added = kept.rows(step.layers, rows, groups)
            return _News(added, pa.array([], pa.binary(16)), pa.array([], pa.binary(16)), KeptChange(table, added))
        changes = each.changes(step)
        groups = yield from self._groups(step, name, each, changes.after)
        gone_groups = yield from self._groups(step, name, each, changes.before)
        added = kept.rows(step.layers, changes.after, groups)
        gone = one_array(changes.before.column(KEY))
        return _News(added, gone, gone_groups, KeptChange(table, added, In(KEY, gone)))

    def _groups(self, step: Step, name: str, each: TopicInput | ViewInput, rows: pa.Table) -> Work[pa.Array]:
        if name not in self.named or rows.num_rows == 0:
            return self.groups[name].of(rows) if rows.num_rows else pa.array([], pa.binary(16))
        [found] = yield [self.named[name].ask({name: each.frame(step, rows)})]
        return self.groups[name].of(found)

    def keep(self, step: Step, name: str, rows: pa.Table) -> Work[KeptChange]:
        """What has to be added to the kept rows of an input for these records."""
        kept = self.kept[name]
        groups = yield from self._groups(step, name, self.whole.inputs[name], rows)
        return KeptChange(kept.table(step.layers), kept.rows(step.layers, rows, groups))

    def _old_rows(self, step: Step, name: str, touched: pa.Array, news: Mapping[str, _News]) -> pa.Table:
        table = self.kept[name].table(step.layers)
        if self.horizon is None or self.kept[name].is_view:
            return step.stored(table, In(GROUP, touched))
        return step.stored(table, self._within_horizon(news))

    def _within_horizon(self, news: Mapping[str, _News]) -> Both:
        """For each touched group, when: around what is new in it, as far as twice the horizon.

        An event changes results that reach one horizon far, and those are made of events up to one more away.
        """
        assert self.horizon is not None
        reach = 2 * (self.horizon // timedelta(microseconds=1))
        ranges: dict[bytes, list[tuple[int, int]]] = {}
        for new in news.values():
            if TIME in new.added.schema.names:
                times = one_array(new.added.column(TIME)).to_pylist()
                for group, time in zip(new.groups.to_pylist(), times, strict=True):
                    ranges.setdefault(group, []).append((max(time - reach, NO_TIME), min(time + reach + 1, TIME_MAX)))
        groups = pa.array(list(ranges), pa.binary(16))
        return Both(In(GROUP, groups), [Ranges(TIME, joined_ranges(each)) for each in ranges.values()])


@dataclass(frozen=True)
class _News:
    """What a step changes in one input of a redo, as kept."""

    added: pa.Table
    gone: pa.Array
    gone_groups: pa.Array
    change: KeptChange

    @property
    def groups(self) -> pa.Array:
        return one_array(self.added.column(GROUP))

    def applied_to(self, rows: pa.Table) -> pa.Table:
        """The rows of the touched groups after the step."""
        if len(self.gone):
            rows = rows.filter(pc.invert(is_among(one_array(rows.column(KEY)), self.gone)))
        return pa.concat_tables([rows, self.added])


def _inside(times: pa.Array, ranges: list[tuple[int, int]]) -> pa.Array:
    """Whether each moment lies in one of the ranges, which are sorted and apart."""
    moments = times.to_numpy()
    starts, stops = (np.array(side, np.int64) for side in zip(*ranges, strict=True))
    place = np.searchsorted(starts, moments, side="right") - 1
    return pa.array((place >= 0) & (moments < stops[np.maximum(place, 0)]))
