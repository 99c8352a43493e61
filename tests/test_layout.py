"""The folder map that people read is the folders that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import penstock
from tests.conftest import ROOT

PACKAGE = ROOT / "src" / "penstock"


def map_in(text: str) -> dict[str, list[str]]:
    """The folders of a map such as `    log/   kept, in order   topic.py  segment.py`, each with the files it names."""
    lines = re.findall(r"^[ ]{4,}(\w+)/[ ]{2,}(.*)$", text, flags=re.MULTILINE)
    return {folder: re.findall(r"\b\w+\.py\b", rest) for folder, rest in lines}


def real_folders() -> set[str]:
    return {path.parent.name for path in PACKAGE.glob("*/*.py")}


def test_map_in_the_package_docstring_is_true() -> None:
    assert_true(map_in(penstock.__doc__ or ""))


def test_map_in_the_readme_is_true() -> None:
    found = map_in((ROOT / "README.md").read_text(encoding="utf-8"))
    if not found:
        pytest.skip("the README has no folder map yet")
    assert_true(found)


def assert_true(found: dict[str, list[str]]) -> None:
    assert set(found) == real_folders()
    named = {f"{folder}/{file}" for folder, files in found.items() for file in files}
    assert {name for name in named if not (PACKAGE / name).is_file()} == set()


@pytest.mark.parametrize("top", ["src/penstock", "tests"])
def test_every_folder_of_code_is_a_package(top: str) -> None:
    folders = {path.parent for path in (ROOT / top).rglob("*.py")}
    assert {folder for folder in folders if not (folder / "__init__.py").is_file()} == set()


def test_tests_have_the_folders_of_the_package() -> None:
    tested = {path.parent.name for path in Path(__file__).parent.glob("*/test_*.py")}
    assert real_folders() - tested == set()
