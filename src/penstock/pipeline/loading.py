"""Finding the pipeline in a user's file: `app.py`, `app.py:name` or `package.module:name`."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from penstock.errors import (
    NoPipeline,
    PenstockError,
    PipelineFileMissing,
    PipelineImportFailed,
    SeveralPipelines,
    did_you_mean,
)
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.place import Place

_folders: list[str] = []


def application_folders() -> tuple[str, ...]:
    """The folders that pipelines were loaded from, in that order: the user's other modules are beside them."""
    return tuple(dict.fromkeys(_folders))


def load_pipeline(target: str) -> Pipeline:
    """The one pipeline that a file or module defines, or the one of that name in it.

    The file is imported with its folder first on `sys.path`, as `python app.py` has it, but `__name__` is the file's
    name and not `__main__`. A file is read anew each time, a module only once. Raises a PipelineLoadError that says
    what is wrong with the target; an error of Penstock's own in the file is passed on as it is.
    """
    where, name = _parted(target)
    if where.endswith(".py") or os.sep in where:
        module = _import_file(where, target)
    else:
        module = _import_module(where, target)
    return _pipeline_in(module, where, name)


def _parted(target: str) -> tuple[str, str | None]:
    where, colon, name = target.rpartition(":")
    if colon and name.isidentifier() and where:
        return where, name
    return target, None


def _import_file(where: str, target: str) -> ModuleType:
    path = Path(where).resolve()
    if not path.is_file():
        found = "a folder" if path.is_dir() else "no such file"
        beside = [each.name for each in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise PipelineFileMissing(target, f"{found} at {path}", did_you_mean(path.name, beside).strip())
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module_name = _module_name(path)
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise PipelineFileMissing(target, f"{path}, which is no Python file")
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(module_name)
    sys.modules[module_name] = module
    try:
        with _users_errors(target, folder):
            spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(module_name)
        if before is not None:
            sys.modules[module_name] = before
        raise
    _travel_by_value(folder)
    return module


def _module_name(path: Path) -> str:
    """The name under which the user's other files would import it; another one if that is somebody else's."""
    known = sys.modules.get(path.stem)
    if path.stem.isidentifier() and path.stem != "__main__":
        is_ours = known is not None and getattr(known, "__file__", None) == str(path)
        if is_ours or (known is None and path.stem not in sys.stdlib_module_names):
            return path.stem
        # Another file of the same name, of a user who has several: the newest one has the name.
        file = getattr(known, "__file__", None) or ""
        if known is not None and path.stem not in sys.stdlib_module_names and "site-packages" not in file:
            return path.stem
    return f"_penstock_file_{path.stem}"


def _import_module(where: str, target: str) -> ModuleType:
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = importlib.util.find_spec(where)
    except (ImportError, ValueError):
        found = None
    if found is None:
        raise PipelineFileMissing(target, f"no module named {where!r}")
    with _users_errors(target, os.getcwd()):
        module = importlib.import_module(where)
    if module.__file__ is not None:
        _travel_by_value(str(Path(module.__file__).parent))
    return module


@contextlib.contextmanager
def _users_errors(target: str, folder: str) -> Iterator[None]:
    """What the user's code raises becomes a PipelineImportFailed that points at the user's line."""
    try:
        yield
    except PenstockError:
        raise
    except (Exception, SystemExit) as error:
        raise PipelineImportFailed(target, _place_of(error, folder), error) from error


def _place_of(error: BaseException, folder: str) -> Place | None:
    """The innermost line of the user's own files on the way to the error; else the innermost of all but imports."""
    if isinstance(error, SyntaxError) and error.filename:
        return Place(error.filename, error.lineno or 1, (error.text or "").strip())
    lines = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename != __file__ and not frame.filename.startswith("<frozen")
    ]
    theirs = [frame for frame in lines if frame.filename.startswith(folder + os.sep) and _is_own(frame.filename)]
    if not theirs and not lines:
        return None
    frame = (theirs or lines)[-1]
    return Place(frame.filename, frame.lineno or 1, frame.line or "")


def _is_own(file: str) -> bool:
    return "site-packages" not in Path(file).parts


def _travel_by_value(folder: str) -> None:
    """Lets the user's functions reach Spark's workers as code, since workers cannot import the user's files.

    What `python app.py` defines travels so by itself, being `__main__`; an imported module would travel as a name.
    """
    _folders.append(folder)
    try:
        from pyspark import cloudpickle
    except ImportError:
        return
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file is not None and file.startswith(folder + os.sep) and _is_own(file) and module.__name__ != "__main__":
            with contextlib.suppress(ValueError):
                cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _pipeline_in(module: ModuleType, where: str, name: str | None) -> Pipeline:
    found = {key: value for key, value in vars(module).items() if isinstance(value, Pipeline)}
    if name is not None:
        if name not in found:
            has = f"a {type(vars(module)[name]).__name__}" if name in vars(module) else "nothing of that name"
            raise NoPipeline(where, name, has, [*found])
        return found[name]
    one_each = {id(value): key for key, value in reversed(found.items())}
    if not one_each:
        names = [key for key in vars(module) if not key.startswith("_")]
        raise NoPipeline(where, None, ", ".join(names[:10]) or "nothing at its top level", [])
    if len(one_each) > 1:
        raise SeveralPipelines(where, sorted(one_each.values()))
    return next(iter(found.values()))
