"""Going back, and going on: an older generation is switched in again, or one that is held ready. Needs no code."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta

from penstock.errors import NothingReady, NothingToRollBack, PipelineOwned, SwitchNotTaken, UnknownGeneration
from penstock.modes.switching import KEEP_OLD, switch_in
from penstock.views.catalog import Catalog, Generation
from penstock.views.requests import answer, ask
from penstock.views.store import Snapshot, Store

WAIT_SECONDS = 60.0
"""So long `penstock switch` waits for a run that holds new rows: it may be in the middle of a long step."""
LOOK_SECONDS = 0.2


def roll_back(store: Store, view: str, *, keep_old: timedelta = KEEP_OLD) -> Generation:
    """Makes the generation that was read before the one people read again, with all views of its set.

    The one that is replaced stays for as long as `keep_old` says, so this can be taken back as well. PipelineOwned
    while a run works on it; NothingToRollBack if no older one is left.
    """
    return roll_back_together(store, view, keep_old=keep_old)[0]


def roll_back_together(store: Store, view: str, *, keep_old: timedelta = KEEP_OLD) -> list[Generation]:
    """The same; all that are read again now, the one with the view first.

    They are several where views were joined or parted since: else some names would be left without rows.
    """
    with store.snapshot() as snapshot:
        pipeline = Catalog(snapshot.connection).find_view(view).pipeline
    with store.own(pipeline) as owner, store.transaction(owner) as tx:
        catalog = Catalog(tx.connection)
        old = [each for each in catalog.generations(pipeline) if each.state == "old"]
        chosen = _before(view, catalog.views(pipeline), old)
        if not chosen:
            raise NothingToRollBack(view)
        return switch_in(tx, chosen, keep_old=keep_old)


def switch_ready(store: Store, pipeline: str | None = None, *, keep_old: timedelta = KEEP_OLD) -> list[Generation]:
    """Switches in what a run with `--hold` has made ready: asks that run for it, or does it where none is at work.

    NothingReady names the pipelines that have something ready; SwitchNotTaken if the run does not answer.
    """
    with store.snapshot() as snapshot:
        chosen, ready = _ready(snapshot, pipeline)
    is_asked = False
    until = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < until:
        with store.snapshot() as snapshot:
            live = [_again(snapshot, each) for each in ready]
        if all(each is not None and each.state == "live" for each in live):
            return [each for each in live if each is not None]
        # The run may end, or be replaced by another one, at any moment: what is ready is read by the owner alone.
        with suppress(PipelineOwned), store.own(chosen) as owner, store.transaction(owner) as tx:
            answer(tx.connection, chosen, "switch")
            return switch_in(tx, _ready(tx, chosen)[1], keep_old=keep_old)
        if not is_asked:
            with store.transaction(None) as tx:
                ask(tx.connection, chosen, "switch")
            is_asked = True
        time.sleep(LOOK_SECONDS)
    with store.transaction(None) as tx:
        answer(tx.connection, chosen, "switch")
    raise SwitchNotTaken(chosen, WAIT_SECONDS)


def find_generation(snapshot: Snapshot, view: str, which: str) -> Generation:
    """One generation of a view by its number, or as `live`, `old` or `new`. UnknownGeneration names those there are."""
    catalog = Catalog(snapshot.connection)
    pipeline = catalog.find_view(view).pipeline
    there = [each for each in catalog.generations(pipeline) if view in each.views and each.state != "batch"]
    live = [each for each in there if each.state == "live"]
    waiting = [each for each in there if each.state in ("building", "ready")]
    replaced = sorted((each for each in there if each.state == "old"), key=lambda each: each.retired_us or 0)
    if which.isdecimal():
        found = [each for each in there if each.number == int(which)]
    else:
        # While something is being replayed it is the new one, and what people read the old one; then they move up.
        found = {"live": live, "new": waiting or live, "old": live if waiting else replaced}.get(which, [])
    if not found:
        raise UnknownGeneration(view, which, [(each.number, each.state) for each in there])
    return found[-1]


def _before(view: str, live: Mapping[str, Generation], old: Sequence[Generation]) -> list[Generation]:
    """The generations last read before, of a view and of those that would lose their rows with it."""
    chosen: list[Generation] = []
    wanted = [view]
    while wanted:
        name = wanted.pop()
        taken = {other for each in chosen for other in each.views}
        found = [] if name in taken else [each for each in old if name in each.views and taken.isdisjoint(each.views)]
        if found:
            chosen.append(max(found, key=lambda each: each.retired_us or 0))
            wanted += [other for each in chosen[-1].views if each in live for other in live[each].views]
    return chosen


def _ready(snapshot: Snapshot, pipeline: str | None) -> tuple[str, Sequence[Generation]]:
    """What waits to be switched in, and in which pipeline. NothingReady if that is not one."""
    ready = [each for each in Catalog(snapshot.connection).generations() if each.state == "ready"]
    found = {each.pipeline for each in ready if pipeline in (None, each.pipeline)}
    if len(found) != 1:
        raise NothingReady(pipeline, sorted({each.pipeline for each in ready}))
    [chosen] = found
    return chosen, [each for each in ready if each.pipeline == chosen]


def _again(snapshot: Snapshot, generation: Generation) -> Generation | None:
    return Catalog(snapshot.connection).read_generation(generation.pipeline, generation.set, generation.number)
