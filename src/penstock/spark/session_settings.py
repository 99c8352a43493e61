"""Settings of a Spark session that hold for one call only."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_lock = threading.Lock()


@contextmanager
def settings_for_now(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Changes settings and puts them back. One thread at a time, so that each finds what the user had set.

    Other queries of the session may see the change for a moment: use it for what changes no answer.
    """
    with _lock:
        before = {name: spark.conf.get(name) for name in settings}
        for name, value in settings.items():
            spark.conf.set(name, value)
        try:
            yield
        finally:
            for name, found in before.items():
                if found is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, found)
