"""One stream in a process of its own, as on another machine: another time zone, another locale, another hash seed.

An answer that depends on one of these differs there. What Penstock sets itself, such as Spark's session time zone, is
the same on every machine, and so it is there.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.errors import FailedElsewhere, VerifyProcessFailed
from penstock.upkeep.changes import KEY
from penstock.upkeep.compiled import CompiledView
from penstock.verify.cuts import Cut
from penstock.verify.processes import started, write_job
from penstock.verify.runs import Run, Runner

ZONES = (("Pacific/Chatham", "CHAT-12:45"), ("America/St_Johns", "NST3:30"))
"""One for machines at or west of UTC, one for those east of it, neither a whole number of hours off; and as a rule for
where no zones are installed."""
LOCALES = ("tr_TR.utf8", "de_DE.utf8", "fr_FR.utf8", "en_US.utf8")
"""The first ones differ from English in most."""
SEEDS = ("4711", "4712")
"""Spark's workers have 0 unless the environment says otherwise."""


def elsewhere(runner: Runner, name: str, cuts: Sequence[Cut], application: str | None) -> Run:
    """Runs the pipeline in a child with another environment; `application` is where commands load it from.

    A child that dies is an error of every view. The run is left out, with a note, if the pipeline cannot get there.
    """
    run = Run(name, "stream")
    folder = runner.folder / "elsewhere"
    is_ascii = f"{folder}{runner.log.url}{os.getcwd()}".isascii()
    environment = other_environment(os.environ, installed_locales(), is_ascii=is_ascii)
    try:
        job = write_job(runner, folder, cuts, application, result=str(folder / "result.pickle"))
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        run.note = (
            "left out: the pipeline was built in memory and cannot be sent to another process "
            f"({type(error).__name__}: {first}); name its file, as penstock verify does"
        )
        return run
    run.note = " ".join(f"{variable}={value}" for variable, value in environment.items())
    try:
        found = _result(job, environment)
    except VerifyProcessFailed as error:
        run.errors = {view.name: error for view in runner.compiled}
        return run
    run.note += f"; {found['note']}"
    run.seconds = found["seconds"]
    run.errors = {view: FailedElsewhere(text) for view, text in found["errors"].items()}
    for view in runner.compiled:
        rows = found["rows"].get(view.name)
        if rows is not None and rows.schema.names == [KEY, *view.shape.columns.names]:
            run.rows[view.name] = rows
        elif rows is not None:
            run.errors[view.name] = _other_columns(view, rows.schema.names[1:])
        elif view.name not in run.errors:
            run.errors[view.name] = FailedElsewhere(f"view {view.name!r} is not in the pipeline there")
    return run


def _other_columns(view: CompiledView, found: Sequence[str]) -> FailedElsewhere:
    expected = ", ".join(view.shape.columns.names)
    return FailedElsewhere(
        f"view {view.name!r} has other columns there\n  expected: {expected}; found: {', '.join(found)}"
    )


def _result(job: Path, environment: Mapping[str, str]) -> Mapping[str, Any]:
    errors = job.with_name("errors.txt")
    began = time.monotonic()
    with errors.open("w", encoding="utf-8") as said, started(job, said, environment) as child:
        assert child.stdout is not None
        for _ in child.stdout:  # What the user's code prints; the end of it is the end of the child.
            pass
        code = child.wait()
    if code:
        told = errors.read_text(encoding="utf-8", errors="replace")
        shown = " ".join(f"{variable}={value}" for variable, value in environment.items())
        raise VerifyProcessFailed(code, told, f"it ran after {time.monotonic() - began:.0f} s with {shown}")
    found: Mapping[str, Any] = pickle.loads(job.with_name("result.pickle").read_bytes())
    return found


def other_environment(here: Mapping[str, str], locales: Collection[str], *, is_ascii: bool) -> dict[str, str]:
    """Variables that differ from those of this process in what answers may depend on by accident.

    A locale must be installed, and of UTF-8, since Java cannot open every file in another one. Where there is none and
    paths are plain ASCII, it is `C`.
    """
    zone, rule = ZONES[time.localtime().tm_gmtoff > 0]
    current = _normal(here.get("LC_ALL") or here.get("LC_CTYPE") or here.get("LANG") or "C")
    known = [
        each for each in dict.fromkeys([*LOCALES, *sorted(locales)]) if each in locales and "utf8" in _normal(each)
    ]
    locale = next((each for each in [*known, *(["C"] if is_ascii else [])] if _normal(each) != current), None)
    return {
        "TZ": zone if Path("/usr/share/zoneinfo", zone).exists() else rule,
        **({} if locale is None else {"LC_ALL": locale}),
        "PYTHONHASHSEED": next(each for each in SEEDS if each != here.get("PYTHONHASHSEED")),
    }


def installed_locales() -> set[str]:
    """As `locale -a` names them; none where there is no such command."""
    try:
        found = subprocess.run(["locale", "-a"], capture_output=True, check=False)
    except OSError:
        return set()
    return set(found.stdout.decode("utf-8", "replace").split())


def _normal(locale: str) -> str:
    """A locale's name, however it is written: `de_DE.UTF-8` and `de_DE.utf8` are the same."""
    return locale.lower().replace("utf-8", "utf8")
