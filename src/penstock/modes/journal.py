"""The journal of a run: about once a second it notes in the database what the run did, for those who watch."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.clock import now_us
from penstock.errors import StoreUnavailable
from penstock.views.runs import Run, Sample, ViewSteps, begin, end, note
from penstock.views.texts import error_text

if TYPE_CHECKING:
    from penstock.modes.engine import Engine
    from penstock.modes.patience import Patience
    from penstock.modes.stream import Stop

logger = logging.getLogger("penstock.modes")

NOTE_SECONDS = 1.0
SAMPLES_MAX = 180
"""So many samples are kept: the last three minutes of a busy stream."""
OUTCOME_CHARACTERS_MAX = 300
_NOTHING = Sample(0, 0, 0, 0.0, 0, 0, 0)


class Journal:
    """Gathers what steps tell. Notes are made between steps, in transactions of their own.

    A note that is lost with a crash is only missed by people: no answer depends on it.
    """

    def __init__(self, engine: Engine, run: Run) -> None:
        self._engine = engine
        self._run = run
        self._samples = deque(run.samples, maxlen=SAMPLES_MAX)
        self._views = {**run.views}
        self._since = _NOTHING
        self._noted = time.monotonic()

    def stepped(
        self,
        *,
        rows: int,
        seconds: float,
        lag: int,
        late: int = 0,
        corrected: int = 0,
        small: Mapping[str, bool] = MappingProxyType({}),
    ) -> None:
        """A step was taken, by one set of views or by several together; `small` as in `StepReport`."""
        for view, is_small in small.items():
            driver, spark = self._views.get(view, ViewSteps())
            self._views[view] = ViewSteps(driver + is_small, spark + (not is_small))
        since = self._since
        self._since = Sample(
            now_us(),
            since.rows + rows,
            since.steps + 1,
            max(since.seconds, round(seconds, 6)),
            since.late + late,
            since.corrected + corrected,
            lag,
        )

    def seconds_until_due(self) -> float | None:
        """When the next note should be made; None if there is nothing to tell."""
        return max(0.0, self._noted + NOTE_SECONDS - time.monotonic()) if self._since.steps else None

    def note_if_due(self) -> None:
        """Makes a note if there is something to tell and the last one is old enough."""
        if self.seconds_until_due() == 0.0:
            self.note()

    def note(self) -> None:
        """Makes a note of what has been told since the last one.

        While the database is away it is made later, with what comes until then: a journal stops nobody.
        """
        since = self._since
        self._noted = time.monotonic()
        if not since.steps:
            return
        run = replace(
            self._run,
            rows=self._run.rows + since.rows,
            steps=self._run.steps + since.steps,
            samples=(*self._samples, since)[-SAMPLES_MAX:],
            views={**self._views},
        )
        try:
            with self._engine.store.transaction(self._engine.owner) as tx:
                note(tx.connection, run)
        except StoreUnavailable as error:
            logger.debug("the journal of the run waits: %s", error)
            return
        self._run, self._since = run, _NOTHING
        self._samples.append(since)

    def close(self, outcome: str) -> None:
        """The run is over. Never raises: whatever ended the run is the news, not this."""
        try:
            self.note()
            with self._engine.store.transaction(self._engine.owner) as tx:
                end(tx.connection, self._run, outcome)
        except Exception as error:
            logger.debug("the end of the run could not be noted: %s", error)


@contextmanager
def journal_of(
    engine: Engine, mode: str, stop: Stop | None = None, patience: Patience | None = None
) -> Iterator[Journal]:
    """Keeps a journal of what happens within, and notes how it ends."""

    def begun() -> Run:
        with engine.store.transaction(engine.owner) as tx:
            return begin(tx.connection, engine.owner, mode)

    journal = Journal(engine, begun() if patience is None else patience.until_done(begun))
    try:
        yield journal
    except BaseException as error:
        is_stopped = isinstance(error, KeyboardInterrupt) or (stop is not None and stop.is_asked)
        journal.close("stopped" if is_stopped else f"failed: {_first_line(error)}")
        raise
    journal.close("stopped" if stop is not None and stop.is_asked else "done")


def _first_line(error: BaseException) -> str:
    return error_text(error).strip().partition("\n")[0][:OUTCOME_CHARACTERS_MAX] or type(error).__name__
