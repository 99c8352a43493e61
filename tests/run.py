"""Runs the tests of one target of the Makefile: `python -m tests.run gate|quick|services|long|timing [pytest options]`.

Each run writes a JUnit file to build/test-reports and prints the slowest tests and the seconds by folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
REPORTS = Path("build/test-reports")
FAILED_TESTS = 1
"""The exit code of pytest where it ran to its end and a test failed."""


@dataclass(frozen=True)
class Target:
    """Which tests a target runs, and how."""

    marks: str
    workers: int
    is_random: bool = False
    """Whether each run tries other examples; its seed is printed, and can be given by the variable SEED."""
    has_rerun: bool = False
    """Whether failed tests are run once more, and reported as flaky if they pass then."""


TARGETS = {
    "quick": Target("quick", workers=2),
    "gate": Target("not services and not long and not timing", workers=2),
    "services": Target("services and not long and not timing", workers=0, has_rerun=True),
    "long": Target("long and not timing", workers=2, is_random=True),
    "timing": Target("timing", workers=0),
}


def run(name: str, options: list[str], root: Path = ROOT) -> int:
    """Run the tests of a target in the folder `root`. Returns the exit code."""
    target = TARGETS[name]
    command = ["-m", target.marks, "-n", str(target.workers), *options]
    environment = dict(os.environ)
    if target.is_random:
        seed = environment.get("SEED") or str(int.from_bytes(os.urandom(4)))
        print(f"seed {seed}; to repeat this run: make test-{name} SEED={seed}", flush=True)
        environment["PENSTOCK_TEST_SEED"] = seed
        command += ["--hypothesis-profile=random", f"--hypothesis-seed={seed}"]
    code = pytest(name, command, environment, root)
    if code != FAILED_TESTS or not target.has_rerun:
        return code
    failed = failures(root / REPORTS / f"{name}.xml")
    rerun = ["--last-failed", "--last-failed-no-failures=none"]
    code = pytest(f"{name}-rerun", [*command, *rerun], environment, root)
    if code == 0:
        print(f"flaky: {len(failed)} tests failed and then passed; read {REPORTS / name}.xml")
        for each in failed:
            print(f"  {each}")
    return code


def pytest(report: str, options: list[str], environment: dict[str, str], root: Path) -> int:
    command = [sys.executable, "-m", "pytest", "--durations=30", f"--junitxml={REPORTS / report}.xml", *options]
    return subprocess.run(command, cwd=root, env=environment, check=False).returncode


def failures(report: Path) -> list[str]:
    """The tests that failed, as the JUnit file names them."""
    return [
        f"{case.get('classname')}::{case.get('name')}"
        for case in ET.parse(report).iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        sys.exit(f"usage: python -m tests.run {'|'.join(TARGETS)} [pytest options]")
    sys.exit(run(sys.argv[1], sys.argv[2:]))
