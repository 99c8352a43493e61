"""Records that a step is computed without, because the function of a view fails on them.

Which records those are is found in `penstock.upkeep.aside`; here a step asks for them, and sends their dead letters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import StepFailed, StepOverflow
from penstock.upkeep.aside import Failed, failed_records, is_data_error, letters, why_not
from penstock.upkeep.commit import dead_topic
from penstock.upkeep.step import Step, Work
from penstock.views.catalog import Catalog
from penstock.views.outbox import enqueue

if TYPE_CHECKING:
    from penstock.upkeep.compiled import CompiledView
    from penstock.views.catalog import Generation
    from penstock.views.store import Transaction


@dataclass(frozen=True)
class SetAside:
    """Records of a step that a view is computed without."""

    view: str
    records: Sequence[Failed]
    letters: pa.Table


def records_behind(error: StepFailed, view: CompiledView, step: Step) -> Work[SetAside | None]:
    """The records that made a step of a view fail; None if it fails for another reason.

    StepFailed, with the reason in it, if this view stops at such a record.
    """
    if not is_data_error(error.__cause__):
        return None
    why = why_not(view)
    if why is not None:
        if isinstance(error, StepOverflow):
            return None
        hint = f"a record on which the function of this view fails stops the run: {why}"
        raise StepFailed(view.name, view.spec.place, error.reason, hint) from error.__cause__
    failed = yield from failed_records(view, step)
    return SetAside(view.name, failed, letters(view, step, failed)) if failed else None


def send_letters(
    tx: Transaction, generation: Generation, fingerprints: Mapping[str, str], aside: Sequence[SetAside]
) -> None:
    """Sends the dead letters of views, by their names, in the transaction of the step.

    What a live generation of the same code has passed was sent by that one: to compute it again beside it is no news.
    """
    mine = [each for each in aside if each.view in fingerprints]
    if not mine:
        return
    live = None
    if generation.state != "live":
        live = Catalog(tx.connection).live(generation.pipeline, generation.set)
    for each in mine:
        is_same = live is not None and live.fingerprints.get(each.view) == fingerprints[each.view]
        passed = live.fence.offsets if live is not None and is_same else {}
        is_new = [one.offset >= passed.get(one.topic, {}).get(one.partition, 0) for one in each.records]
        topic = dead_topic(generation.pipeline, each.view)
        enqueue(tx.connection, generation.pipeline, topic, each.letters.filter(pa.array(is_new)))
