"""Tokens are kept as hashes, in a file that is nobody else's."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.errors import TokensUnreadable, TokenTaken, UnknownToken
from penstock.service.tokens import Tokens


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    return Tokens(tmp_path / "deep" / "tokens.json")


def test_only_the_hash_is_kept_and_only_we_can_read_it(tokens: Tokens) -> None:
    secret = tokens.add("shop", ["write"])
    assert secret.startswith("pst_")
    assert len(secret) > 40
    assert secret not in tokens.path.read_text()
    assert stat.S_IMODE(tokens.path.stat().st_mode) == 0o600
    found = tokens.find(secret)
    assert found is not None
    assert (found.name, found.rights) == ("shop", ("write",))
    assert tokens.find(secret[:-1]) is None
    assert tokens.find("") is None


def test_another_process_sees_at_once_what_was_changed(tokens: Tokens) -> None:
    other = Tokens(tokens.path)
    assert other.all() == ()
    secret = tokens.add("shop", ["read"])
    assert other.find(secret) is not None
    tokens.remove("shop")
    assert other.find(secret) is None


def test_names_are_taken_once_and_unknown_ones_are_told(tokens: Tokens) -> None:
    tokens.add("shop", ["read"])
    with pytest.raises(TokenTaken, match="token remove shop"):
        tokens.add("shop", ["admin"])
    with pytest.raises(UnknownToken, match="did you mean 'shop'"):
        tokens.remove("shpo")
    assert [each.rights for each in tokens.all()] == [("read",)]


def test_many_may_add_at_once(tokens: Tokens) -> None:
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: Tokens(tokens.path).add(f"t{number}", ["read"]), range(12)))
    assert {each.name for each in tokens.all()} == {f"t{number}" for number in range(12)}


def test_a_file_that_others_may_read_is_not_used(tokens: Tokens) -> None:
    tokens.add("shop", ["read"])
    tokens.path.chmod(0o644)
    with pytest.raises(TokensUnreadable, match="chmod 600"):
        Tokens(tokens.path).all()


@pytest.mark.parametrize("text", ["", "{}", '{"tokens": [{}]}', "[]", "\0"])
def test_a_file_that_is_none_of_ours_opens_nothing(tokens: Tokens, text: str) -> None:
    tokens.add("shop", ["read"])
    tokens.path.write_text(text)
    with pytest.raises(TokensUnreadable, match="cannot be read"):
        Tokens(tokens.path).all()
