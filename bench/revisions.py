"""The benchmarks of an older commit beside those of this working tree, in turns.

    python -m bench.revisions COMMIT [--rounds 3] [--quick] [--json]

Each round runs each side in a process of its own, the older commit from a temporary git worktree. A ratio is this tree
over the older commit, of the medians. The last line of `--json` is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent.parent
PIPELINE = ("batch_vs_plain", "catch_up_vs_structured_streaming", "step_vs_structured_streaming")
APPEND = """
import json, pathlib, tempfile
from bench.log_storage import append_vs_raw
with tempfile.TemporaryDirectory(dir='.') as folder:
    print(json.dumps(append_vs_raw(pathlib.Path(folder))))
"""
FIGURES = ("batch_vs_plain", "catch_up_vs_structured_streaming", "step_vs_structured_streaming", "append_vs_raw")
IS_BETTER_HIGHER = ("catch_up_vs_structured_streaming", "append_vs_raw")
SLOWER_MAX = 1.05
"""This tree may be slower by so much."""


@contextmanager
def worktree(commit: str) -> Iterator[Path]:
    """The files of a commit in a folder, while the context lasts."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = Path(folder) / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", path, commit], cwd=HERE, check=True)
        try:
            yield path
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", path], cwd=HERE, check=True)


def measure(tree: Path, is_quick: bool) -> dict[str, float]:
    """The figures of one tree, each benchmark in a process of its own."""
    pipeline = ["-m", "bench.pipeline", "--json", *(["--quick"] if is_quick else []), "--only", *PIPELINE]
    return {**run(tree, ["-c", APPEND]), **run(tree, pipeline)}


def run(tree: Path, arguments: Sequence[str]) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}"}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"the benchmark failed in {tree}:\n{done.stderr}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def slowdown(name: str, old: float, new: float) -> float:
    """How many times slower this tree is."""
    return old / new if name in IS_BETTER_HIGHER else new / old


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="the older commit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="fewer rows")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    arguments = parser.parse_args()
    taken: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with worktree(arguments.commit) as tree:
        for _ in range(arguments.rounds):
            old, new = (measure(each, arguments.quick) for each in (tree, HERE))
            for name in FIGURES:
                taken[name].append((old[name], new[name]))
                print(f"{name:36} {old[name]:8.3f} {new[name]:8.3f}", flush=True)
    ratios = {}
    print(f"\n{'median':36} {'older':>8} {'this':>8} {'slower':>8}")
    for name, pairs in taken.items():
        old_median, new_median = (statistics.median(side) for side in zip(*pairs, strict=True))
        ratios[f"{name}_slowdown"] = slowdown(name, old_median, new_median)
        verdict = "met" if ratios[f"{name}_slowdown"] <= SLOWER_MAX else "NOT MET"
        print(f"{name:36} {old_median:8.3f} {new_median:8.3f} {ratios[f'{name}_slowdown']:8.3f}  <= 1.05: {verdict}")
    if arguments.json:
        print(json.dumps(ratios))


if __name__ == "__main__":
    main()
