"""The long versions of the tests of faults, by command: prints its seed and what it found, ends with 1 at a fault.

python -m tests.faults.storm --kills 1000
python -m tests.faults.storm --power-cuts 1000
python -m tests.faults.storm --every-call
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.injection import NoTracing, calls_of, inject_all
from tests.faults.kills import kill_storm
from tests.faults.power import NoPowerCut, power_cuts

MEMORY = Path("/dev/shm")


def kill(directory: Path, kills: int, seed: int) -> bool:
    """Kills producers, consumers and sealers. Whether all was well."""
    rounds = kill_storm(directory, kills=kills, seed=seed, report=_say)
    return all(each.verdict.is_clean and not each.crashes for each in rounds)


def cut(directory: Path, cuts: int, seed: int) -> bool:
    """Cuts the power. Whether all was well."""
    verdicts, unexpected = power_cuts(directory, cuts=cuts, seed=seed, report=_say)
    for found in (*unexpected, *(str(verdict) for verdict in verdicts if not verdict.is_clean)):
        _say(found)
    return not unexpected and all(verdict.is_clean for verdict in verdicts)


def fail_every_call(directory: Path) -> bool:
    """A kill and an I/O error at every single call of both scenarios. Whether all was well."""
    calls = calls_of("life", directory) + calls_of("mend", directory)
    _say(f"{len(calls)} system calls, with a kill and an error at each")
    return not inject_all(directory, calls, ("kill", "error"), report=_say)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.storm", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=0, help="kill so many producers, consumers and sealers")
    parser.add_argument("--power-cuts", type=int, default=0, help="cut the power so often (needs root)")
    parser.add_argument("--every-call", action="store_true", help="a kill and an error at every call (needs strace)")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000_000)
    options = parser.parse_args(arguments)
    logging.getLogger("penstock").setLevel(logging.ERROR)
    _say(f"seed {options.seed}")
    is_clean = True
    started = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="storm-") as slow, _memory() as fast:
            if options.kills:
                is_clean &= kill(Path(slow) / "kills", options.kills, options.seed)
            if options.power_cuts:
                is_clean &= cut(Path(fast), options.power_cuts, options.seed)
            if options.every_call:
                is_clean &= fail_every_call(Path(fast))
    except (NoPowerCut, NoTracing) as error:
        _say(f"not possible here: {error}")
        return 2
    _say(f"{'clean' if is_clean else 'FAULTS'} after {time.monotonic() - started:.0f} s")
    return 0 if is_clean else 1


def _memory() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="storm-", dir=MEMORY if MEMORY.is_dir() else None)


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
