"""penstock token: the tokens that open the service."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import fails, run


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_tokens_are_made_listed_and_removed() -> None:
    secret = run("token", "add", "shop", "--rights", "read,write").strip()
    assert secret.startswith("pst_")
    assert secret not in Path("data/tokens.json").read_text()
    assert json.loads(run("token", "list", "--json")) == [{"name": "shop", "rights": ["read", "write"]}]
    assert "shop" in run("token", "list")
    assert "there already" in fails("token", "add", "shop")
    assert run("token", "remove", "shop") == "token 'shop' is removed\n"
    assert "no token is named 'shop'" in fails("token", "remove", "shop")


@pytest.mark.parametrize("words", [["add", "shop", "--rights", "all"], ["add", "shop", "--rights", ""], ["add", "a b"]])
def test_rights_and_names_that_cannot_be_are_wrong_usage(words: list[str]) -> None:
    assert fails("token", *words, code=2)
