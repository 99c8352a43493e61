"""A part of `bench.scale` in a process of its own, for a process has one Spark.

    python -m bench.scale_elsewhere MASTER LOG FOLDER RECORDS

Prints the seconds of each round of catching up with a windowed count per key, as a list, when it is warm.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from bench.pipeline import counting
from penstock.modes.run import opened
from penstock.modes.stream import run_stream

PARTITIONS = 4
WARM_UP_ROUNDS, ROUNDS = 1, 3


def catch_up(master: str, log: str, database: Path, records: int) -> float:
    """How long a stream takes from the first record to the last."""
    settings = {
        "log.url": log, "log.shared": True, "views.url": f"sqlite:{database}",
        "spark.master": master, "spark.shuffle_partitions": 2,
    }  # fmt: skip
    with opened(counting(partitions=PARTITIONS), settings) as engine:
        began = time.monotonic()
        [running] = run_stream(engine, once=True)
        seconds = time.monotonic() - began
        assert sum(running.fence.offsets["events"].values()) == records, running.fence
    return seconds


def main() -> None:
    master, log, folder, records = sys.argv[1:]
    taken = [
        catch_up(master, log, Path(folder) / f"elsewhere-{os.getpid()}-{number}.db", int(records))
        for number in range(WARM_UP_ROUNDS + ROUNDS)
    ]
    print(json.dumps(taken[WARM_UP_ROUNDS:]))


if __name__ == "__main__":
    main()
