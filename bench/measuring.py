"""What the benchmarks of pipelines share: turns, medians, verdicts, and their command line."""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pyspark.sql import SparkSession

from penstock.settings import SparkSettings
from penstock.spark import session

Size = TypeVar("Size")
WARM_UP_ROUNDS = 3
"""After one, Java still compiles: the same side then takes up to half as long again as two rounds later."""
Aims = Mapping[str, tuple[str, float]]
"""By figure: ">=" or "<=", and what it is measured against."""


def in_turns(sides: Mapping[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """The median time of each side, after some rounds to warm up."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(-WARM_UP_ROUNDS, rounds):
        for name, side in sides.items():
            began = time.monotonic()
            side()
            if number >= 0:
                taken[name].append(time.monotonic() - began)
    return {name: statistics.median(times) for name, times in taken.items()}


def verdict(aims: Aims, name: str, value: float) -> str:
    """Whether a figure is what was promised; empty where nothing was."""
    sign, aim = aims.get(name, ("", 0.0))
    is_met = value >= aim if sign == ">=" else value <= aim
    return "" if not sign else f"  {sign} {aim:g}: {'met' if is_met else 'NOT MET'}"


def main(
    told: str | None,
    bench: Callable[[Path, SparkSession, Size], object],
    full: Size,
    quick: Size,
    measurements: Sequence[str],
    aims: Aims,
    conf: Mapping[str, str] | None = None,
) -> None:
    """Runs the measurements, which are methods of `bench`, as the command line says, on a Spark with this `conf`."""
    parser = argparse.ArgumentParser(description=told, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--quick", action="store_true", help="fewer rows and rounds")
    parser.add_argument("--only", nargs="*", choices=measurements, default=[], help="just these")
    arguments = parser.parse_args()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=".", prefix="bench-") as folder:
        spark = session(SparkSettings(master="local[2]", shuffle_partitions=2, conf=conf or {}), name="bench")
        made = bench(Path(folder), spark, quick if arguments.quick else full)
        for name in arguments.only or measurements:
            found: dict[str, float] = getattr(made, name)()
            figures.update(found)
            for figure, value in found.items():
                print(f"{figure:44} {value:16,.3f}{verdict(aims, figure, value)}", flush=True)
    if arguments.json:
        print(json.dumps(figures))
