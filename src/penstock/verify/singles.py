"""Which records are taken one by one: by the groups of the views that they touch.

A step of one record shows most where it meets what is there already: a second record of a group, one that shares its
window, a late one. So each view gets some records of a few of its groups. The choice follows from the log and the
views, never from a clock, so every machine chooses the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, zip_longest

from penstock.modes.engine import Engine
from penstock.spark.private import surgery
from penstock.upkeep.compiled import CompiledView
from penstock.upkeep.explain import PLACE, Explainer
from penstock.upkeep.inputs import TopicInput
from penstock.verify.cuts import Arrival, Cut, Recorded
from penstock.verify.runs import Run, Runner

AMONG = 10_000
"""They are chosen among this many records, the first ones along arrival."""
STEPS_AFTER = 5
"""In about this many steps the rest of the log is taken, after the last one of them."""
OF_GROUP = 3
"""How many of the first records of a group are taken, beside its first late one and its last."""

Groups = Mapping[int, list[int]]
"""Places of records along arrival, by group."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Single:
    """What the views of one set are given record by record."""

    cuts: list[Cut]
    """A step for each chosen record, and one for what lies between two of them."""
    records: int
    """How many records have a step of their own."""
    seen: Mapping[str, tuple[int, int]]
    """By view, how many of them touch it, and how many it could have seen. Views of views only are not in here."""

    @property
    def little(self) -> list[str]:
        """What a view saw too few of, in words: nothing met what was there before."""
        return [
            f"view {view!r} saw {seen} of {total:,} records one by one"
            for view, (seen, total) in self.seen.items()
            if seen < min(total, OF_GROUP)
        ]


def one_by_one(runner: Runner, name: str, batch: str, count: int) -> Run:
    """A stream that takes at most `count` records by themselves in each set of views, and the rest in larger steps.

    `batch` is the run whose results tell which groups the records touch.
    """
    recorded = runner.recorded
    with runner.results(batch) as computed:
        found = {_names(views): singles(computed, views, recorded, count) for views in computed.sets}

    def cuts(views: Sequence[CompiledView]) -> list[Cut]:
        alone = found[_names(views)].cuts
        rest = Recorded(recorded.topics, alone[-1] if alone else recorded.start, recorded.end)
        return [*alone, *(rest.evenly(STEPS_AFTER) if rest.total else [])]

    run = runner.stream(name, cuts)
    counts = sorted({each.records for each in found.values()})
    run.note += f"; {' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} records one by one"
    for each in found.values():
        run.note += "".join(f"; {words}" for words in each.little)
    return run


def _names(views: Sequence[CompiledView]) -> tuple[str, ...]:
    return tuple(view.name for view in views)


def singles(engine: Engine, views: Sequence[CompiledView], recorded: Recorded, count: int) -> Single:
    """At most `count` records for these views, which `engine` has computed. Never fails: at worst the first ones."""
    topics = {topic for view in views for topic in view.topics}
    arriving = [each for each in recorded.arriving(AMONG) if each.topic in topics]
    late = {each.place for each in arriving if each.is_late}
    of_views = {view.name: _groups_of(engine, view, arriving) for view in views if view.topics}
    wanted = chain.from_iterable(zip_longest(*(_wanted(groups, late) for groups in of_views.values())))
    rest = (each.place for each in arriving)
    places = set(islice(dict.fromkeys(each for each in chain(wanted, rest) if each is not None), count))
    chosen = [each for each in arriving if each.place in places]
    totals = {view: {place for group in groups.values() for place in group} for view, groups in of_views.items()}
    return Single(
        recorded.alone(chosen),
        len(chosen),
        {view: (len(touching & places), len(touching)) for view, touching in totals.items()},
    )


def _groups_of(engine: Engine, view: CompiledView, arriving: Sequence[Arrival]) -> Groups:
    """The groups of a view that these records touch."""
    try:
        return _touched(engine, view, arriving)
    except Exception as error:  # A view that cannot be computed right may not be explained either.
        _log.debug("the groups of %s could not be told: %s", view.name, error)
        return {0: [each.place for each in arriving if each.topic in view.topics]}


def _touched(engine: Engine, view: CompiledView, arriving: Sequence[Arrival]) -> Groups:
    generation = engine.live(engine.set_of(view.name))
    assert generation is not None, f"the batch of {view.name} left nothing"
    places = {(each.topic, each.partition, each.offset): each.place for each in arriving}
    until: dict[str, dict[int, int]] = {name: dict(offsets) for name, offsets in generation.fence.offsets.items()}
    for name, offsets in until.items():
        for partition in offsets:
            taken = [each.offset + 1 for each in arriving if (each.topic, each.partition) == (name, partition)]
            offsets[partition] = max(taken, default=engine.log.topic(name).start()[partition])
    cut = replace(generation, fence=replace(generation.fence, offsets=until))
    found: dict[int, set[int]] = {}
    with engine.store.snapshot() as snapshot:
        explainer = Explainer(view, cut, snapshot, engine.log, engine.spark)
        for each in view.inputs.values():
            if isinstance(each, TopicInput):
                names = [surgery.carried_name(column) for column in PLACE[:2]]
                for row in explainer.groups(each).distinct().toArrow().to_pylist():
                    place = places.get((each.topic, *(row[hidden] for hidden in names)))
                    if place is not None:
                        found.setdefault(row["group"], set()).add(place)
    return {group: sorted(members) for group, members in found.items()}


def _wanted(groups: Groups, late: set[int]) -> Iterator[int]:
    """Places of records that a view should see alone, the best first.

    They are of a group with a late record, the largest one, the two that come first, and a small one of several.
    """
    by_size = sorted(groups.values(), key=lambda group: (-len(group), group))
    by_first = sorted(groups.values())
    with_late = (group for group in by_size if len(group) > 1 and not late.isdisjoint(group))
    small = (group for group in reversed(by_size) if len(group) > 1)
    kinds = chain(islice(with_late, 1), by_size[:1], by_first[:2], islice(small, 1))
    yield from chain.from_iterable(_of_group(group, late) for group in kinds)


def _of_group(group: Sequence[int], late: set[int]) -> Iterator[int]:
    yield from group[:2]
    yield from islice((each for each in group if each in late), 1)
    yield group[-1]
    yield from group[2:OF_GROUP]
