"""Python functions as Spark packs them, taken out again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def unpickled(command: bytes, broadcasts: Mapping[int, str]) -> Any:
    """The function that a plan holds; of a table function, its class. May raise whatever the user's code raises.

    What is above a megabyte travels as a broadcast, and so may what it uses: `broadcasts` are their files by id.
    """
    from pyspark.core.broadcast import Broadcast, _broadcastRegistry
    from pyspark.serializers import CloudPickleSerializer

    pickles: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]
    there = dict(_broadcastRegistry)
    _broadcastRegistry.update({number: Broadcast(path=path) for number, path in broadcasts.items()})
    try:
        found = pickles.loads(command)
        if isinstance(found, Broadcast):
            found = pickles.loads(found.value)
    finally:
        _broadcastRegistry.clear()
        _broadcastRegistry.update(there)
    return found[0] if isinstance(found, tuple) else found
