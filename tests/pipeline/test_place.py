from __future__ import annotations

import linecache
from pathlib import Path
from typing import Any

import pytest

from penstock import Pipeline
from penstock.pipeline.place import Place

CODE = """from penstock import Pipeline

app = Pipeline("app")
access = app.topic(
    "access",
    "ip string",
)

@app.view(
    key="ip",
)
def hits(access: object, *, other) -> object:
    return access

app.view("busy", sql="SELECT * FROM hits")
"""


def places(app: Pipeline) -> dict[str, tuple[int, str]]:
    found = {"app": app.place, **{name: spec.place for name, spec in app.names().items()}}
    return {name: (place.line, place.text) for name, place in found.items()}


def run(code: str, file: str) -> Pipeline:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(code, file, "exec"), names)
    app = names["app"]
    assert isinstance(app, Pipeline)
    return app


def test_each_definition_knows_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text(CODE)
    app = run(CODE, str(tmp_path / "app.py"))
    assert places(app) == {
        "app": (3, 'app = Pipeline("app")'),
        "access": (4, "access = app.topic("),
        "hits": (12, "def hits(access, *, other)"),
        "busy": (15, 'app.view("busy", sql="SELECT * FROM hits")'),
    }
    assert str(app.views["hits"].place) == "app.py:12"
    assert app.place.folder == str(tmp_path)
    monkeypatch.chdir("/")
    assert str(app.views["hits"].place).endswith(f"{tmp_path.name}/app.py:12")


def test_a_notebook_cell_has_lines_too(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = "<ipython-input-7-abc>"
    lines = CODE.splitlines(keepends=True)
    monkeypatch.setitem(linecache.cache, cell, (len(CODE), None, lines, cell))
    app = run(CODE, cell)
    assert places(app)["hits"] == (12, "def hits(access, *, other)")
    assert str(app.topics["access"].place) == f"{cell}:4"
    assert app.place.folder is None


def test_code_without_source_still_has_a_line() -> None:
    app = run(CODE, "<string>")
    assert places(app)["hits"] == (9, "def hits(access, *, other)")
    assert places(app)["access"] == (4, "")
    assert app.topics["access"].place.shown == "<string>:4"


def test_a_long_line_is_shown_in_part() -> None:
    assert len(Place("app.py", 3, "x" * 1000).shown) < 130
