"""Penstock: write a pipeline once, run it as batch, stream, lambda or kappa over one log, and get the same answer.

The way of an event, and of the folders:

    events/      what they look like           ddl.py  encode.py  keys.py
    produce/     they come in                  producer.py  sender.py  spill.py
    log/         and are kept, in order        partition.py  segment.py  sealed.py  topic.py
    kafka/       or by Kafka                   partition.py  writing.py  reading.py  groups.py
    consume/     and go out again              consumer.py  group.py
    spark/       as DataFrames too             read.py  source.py  builder.py
    pipeline/    what to compute               pipeline.py  definition.py  loading.py
    plans/       how each view can be kept     keeping.py  fold.py  redo.py  collect.py
    upkeep/      how it is kept                step.py  fold.py  redo.py  whole.py  merge.py
    aggregates/  and what merges               moments.py  theta.py  buckets.py
    modes/       how to run it                 batch.py  stream.py  rounds.py  replays.py
    views/       what people read              store.py  sqlite.py  postgres.py  owner.py
    service/     and over HTTP                 server.py  guard.py  rows.py  posting.py
    dashboard/   and watch                     pulse.py  pages.py  screen.py  chart.py
    alerts/      and are told                  looking.py  telling.py  courier.py  mail.py
    verify/      do all runs agree?            verify.py  runs.py  report.py
    load/        history, from files           loading.py
    check/       is the log whole?             checking.py  repair.py
    cli/         one file per command          run.py  view.py  topic.py  produce.py
    demo/        all of it at work             weblogs.py  traffic.py  demo.py
    errors/      what can go wrong             log.py  pipeline.py  views.py  modes.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock import agg
    from penstock.consume.consumer import Consumer
    from penstock.errors import PenstockError
    from penstock.log.log import Log
    from penstock.log.topic import Topic
    from penstock.modes.run import run
    from penstock.pipeline.pipeline import Pipeline
    from penstock.produce.producer import Producer

__all__ = ["Consumer", "Log", "PenstockError", "Pipeline", "Producer", "Topic", "agg", "run"]

_HOMES = {
    "Consumer": "penstock.consume.consumer",
    "Log": "penstock.log.log",
    "PenstockError": "penstock.errors",
    "Pipeline": "penstock.pipeline.pipeline",
    "Producer": "penstock.produce.producer",
    "Topic": "penstock.log.topic",
    "agg": "penstock.agg",
    "run": "penstock.modes.run",
}


def __getattr__(name: str) -> Any:
    """Imports a name when it is first used: `import penstock` alone costs nothing."""
    if name in _HOMES:
        from importlib import import_module

        home = import_module(_HOMES[name])
        return home if home.__name__ == f"penstock.{name}" else getattr(home, name)
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
