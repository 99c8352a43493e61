"""What a step does to a view: which keys come twice, and which rows go."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.upkeep.changes import KEY, Changes, repeated

HALF, OTHER = b"\x00" * 7 + b"\x01", b"\xff" * 8
SCHEMA = pa.schema([(KEY, pa.binary(16)), ("hits", pa.int64())])

KEYS = st.lists(st.tuples(st.sampled_from([HALF, OTHER]), st.sampled_from([HALF, OTHER, b"\x80" * 8])).map(b"".join))


def array(keys: list[bytes]) -> pa.Array:
    return pa.array(keys, pa.binary(16))


def rows(*keys: bytes) -> pa.Table:
    return pa.table([array([*keys]), pa.array([1] * len(keys), pa.int64())], schema=SCHEMA)


@given(keys=KEYS, cut=st.integers(0, 3))
def test_a_key_is_found_to_be_there_twice_exactly_if_it_is(keys: list[bytes], cut: int) -> None:
    found = repeated(array(keys)[cut:])
    keys = keys[cut:]
    if found is None:
        assert len(set(keys)) == len(keys)
    else:
        one, other = found
        assert one != other
        assert keys[one] == keys[other]


@pytest.mark.parametrize("keys", [[], [HALF + HALF], [HALF + HALF, HALF + OTHER]])
def test_keys_that_are_alike_in_their_first_half_are_not_the_same(keys: list[bytes]) -> None:
    assert repeated(array(keys)) is None


@pytest.mark.parametrize(
    ("before", "after", "gone"),
    [
        ([], [HALF + HALF], []),
        ([HALF + HALF], [], [HALF + HALF]),
        ([HALF + HALF, HALF + OTHER], [HALF + OTHER], [HALF + HALF]),
    ],
)
def test_what_goes_is_what_was_there_and_is_not_any_more(
    before: list[bytes], after: list[bytes], gone: list[bytes]
) -> None:
    changes = Changes(rows(*before), rows(*after))
    assert changes.gone.equals(array(gone))
    assert len(changes) == len(after) + len(gone)
