"""What can be said of an error, and stored."""

from __future__ import annotations

import pytest
from sqlalchemy import Text, literal, select

from penstock.views.store import Store
from penstock.views.texts import error_text, storable


class Mute(Exception):
    """An error that cannot say what it is."""

    def __str__(self) -> str:
        raise ValueError("no words")


def test_an_error_that_cannot_speak_is_told_all_the_same() -> None:
    assert error_text(Mute()) == "it cannot be put in words"
    assert error_text(OSError("a file named \udcff\0")) == "a file named ?"


@pytest.mark.parametrize("text", [storable("\ud800\0"), "ä 😀 \x01\x7f"])
def test_what_is_storable_comes_back_as_it_was(store: Store, text: str) -> None:
    with store.transaction(None) as tx:
        assert tx.connection.execute(select(literal(text, Text))).scalar() == text == storable(text)
