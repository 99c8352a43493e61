"""All promises about the log's speed, measured in one go.

    python -m bench.log [--json] [--quick]

Both sides of every ratio run on the same machine in turns, warmed up, medians of five. `--quick` uses fewer rows.
The last line of `--json` is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from bench import log_producers, log_spark, log_storage

AIMS = {
    "append_vs_raw": (">=", 0.6),
    "durable_events_per_second": (">=", 100_000),
    "spark_sealed_vs_parquet": (">=", 0.9),
    "spark_hot_vs_parquet": (">=", 0.4),
    "open_seconds": ("<", 1.0),
    "recovery_seconds_per_gib": ("<", 2.0),
}
"""What was promised; everything else is printed for those who want to know."""


def measure(directory: Path, *, quick: bool = False) -> dict[str, float]:
    figures = log_storage.measure(directory, 10_000_000 if quick else 100_000_000)
    producers = log_producers.measure(8, 3 if quick else 10, directory)
    figures["durable_events_per_second"] = producers.pop("events_per_second")
    figures.update(producers)
    figures.update(log_spark.measure(directory, 2_000_000 if quick else log_spark.ROWS))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--quick", action="store_true", help="fewer rows: minutes instead of a quarter of an hour")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".", prefix="bench-") as directory:
        figures = measure(Path(directory), quick=arguments.quick)
    for name, value in figures.items():
        sign, aim = AIMS.get(name, ("", 0.0))
        is_met = value >= aim if sign == ">=" else value < aim
        verdict = "" if not sign else f"  {sign} {aim:g}: {'met' if is_met else 'NOT MET'}"
        print(f"{name:36} {value:16,.3f}{verdict}")
    if arguments.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
