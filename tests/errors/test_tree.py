"""The tree that people read at the head of `penstock.errors` is the tree that is there."""

from __future__ import annotations

import inspect
import re

import penstock.errors
from penstock.errors import PenstockError


def classes() -> dict[str, type[PenstockError]]:
    found = inspect.getmembers(penstock.errors, inspect.isclass)
    return {name: each for name, each in found if issubclass(each, PenstockError)}


def drawn() -> dict[str, str]:
    """Each class of the drawing with the one it stands under."""
    parents: dict[str, str] = {}
    open_branches: list[str] = []
    for line in (penstock.errors.__doc__ or "").splitlines():
        match = re.match(r"^((?:[│├└─ ]{4})*)([A-Z]\w+)\b", line)
        if match and (match[2] in classes() or match[1]):
            depth = len(match[1]) // 4
            open_branches[depth:] = [match[2]]
            parents[match[2]] = open_branches[depth - 1] if depth else ""
    return parents


def test_every_error_is_in_the_drawing_under_its_parent() -> None:
    assert drawn() == {
        name: "" if each is PenstockError else each.__bases__[0].__name__ for name, each in classes().items()
    }


def test_every_error_is_exported() -> None:
    assert {*classes(), "did_you_mean", "require"} == {*penstock.errors.__all__}


def test_every_error_says_what_it_is() -> None:
    assert [name for name, each in classes().items() if not inspect.getdoc(each)] == []
