"""What the executors of a cluster are sent: Penstock itself, as it is here, and the user's own modules.

Nothing of it has to be installed there, so a cluster always runs the code that the driver runs. What is written in C
cannot travel like that: see `executors`.
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import penstock
from penstock.pipeline.loading import application_folders

if TYPE_CHECKING:
    from pyspark import SparkContext

# Executors fetch from here, also those that come later: the folder goes when the process does.
_kept: list[tempfile.TemporaryDirectory[str]] = []


def ship(context: SparkContext) -> None:
    """Sends Penstock and the application to every executor, now and later; it precedes what is installed there."""
    folder = tempfile.TemporaryDirectory(prefix="penstock-shipped-")
    _kept.append(folder)
    path = list(sys.path)
    # Unpacked beside the tasks, in a folder that all Python workers look into, those of format("penstock") too.
    package = _zipped(Path(folder.name) / "penstock.zip", _files_of(Path(penstock.__file__).parent))
    context.addArchive(f"{package}#penstock")
    modules = [pair for beside in _application_folders() for pair in _modules_in(beside)]
    if modules:
        context.addPyFile(str(_zipped(Path(folder.name) / "application.zip", modules)))
    # Here the originals count.
    sys.path[:] = path


def _zipped(target: Path, files: Iterable[tuple[Path, str]]) -> Path:
    names = set()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, name in files:
            if name not in names:  # The first folder counts, as on sys.path.
                names.add(name)
                archive.write(file, name)
    return target


def _files_of(package: Path, prefix: str = "") -> Iterator[tuple[Path, str]]:
    """The Python files of a package, each with its name from there on."""
    for file in sorted(package.rglob("*.py")):
        yield file, prefix + file.relative_to(package).as_posix()


def _application_folders() -> list[Path]:
    """Where the user's own modules are: beside the pipeline's file, and beside the program that was started."""
    program = getattr(sys.modules.get("__main__"), "__file__", None)
    found = [Path(folder) for folder in application_folders()]
    if program is not None and program.endswith(".py") and not _is_installed(Path(program).resolve()):
        found.append(Path(program).resolve().parent)
    return list(dict.fromkeys(found))


def _is_installed(file: Path) -> bool:
    package = Path(penstock.__file__).parent
    return "site-packages" in file.parts or file.is_relative_to(package) or file.is_relative_to(sys.base_prefix)


def _modules_in(folder: Path) -> Iterator[tuple[Path, str]]:
    """The modules and packages of a folder. What else lies there, such as data or an environment, is not sent."""
    for entry in sorted(folder.iterdir()):
        if entry.suffix == ".py" and _is_file(entry):
            yield entry, entry.name
        elif _is_file(entry / "__init__.py"):
            yield from _files_of(entry, f"{entry.name}/")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except PermissionError:  # In a folder that is not ours to look into.
        return False
