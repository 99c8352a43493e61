"""Penstock: write a pipeline once, run it as a batch or as a stream over one log, and get the same answer every time.

The way of an event, and of the folders:

    log/        events are kept, in order
    cli/        one file per command
    demo/       the log at work, in one command
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.errors import PenstockError
    from penstock.log.consumer import Consumer
    from penstock.log.log import Log
    from penstock.log.producer import Producer
    from penstock.log.topic import Topic

__all__ = ["Consumer", "Log", "PenstockError", "Producer", "Topic"]

_HOMES = {
    "Consumer": "penstock.log.consumer",
    "Log": "penstock.log.log",
    "PenstockError": "penstock.errors",
    "Producer": "penstock.log.producer",
    "Topic": "penstock.log.topic",
}


def __getattr__(name: str) -> Any:
    """Imports a name when it is first used: `import penstock` alone costs nothing."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
