"""A fence comes back from its text, and tells how far behind it is."""

from __future__ import annotations

from types import MappingProxyType

from hypothesis import given
from hypothesis import strategies as st

from penstock.views.fence import Fence, Origin

OFFSETS = st.dictionaries(st.text(max_size=5), st.dictionaries(st.integers(0, 99), st.integers(0, 2**62), max_size=3))


@given(OFFSETS, st.integers(0, 2**62))
def test_a_fence_comes_back_from_its_text(offsets: dict[str, dict[int, int]], clock_us: int) -> None:
    fence = Fence(offsets, clock_us, origins={name: Origin(f"id of {name}", part) for name, part in offsets.items()})
    assert Fence.from_json(fence.to_json()) == fence


def test_the_same_fence_has_the_same_text_and_is_equal() -> None:
    one = Fence({"b": {1: 5, 0: 7}, "a": {}}, 3)
    other = Fence(MappingProxyType({"a": {}, "b": MappingProxyType({0: 7, 1: 5})}), 3)
    assert one == other
    assert one.to_json() == other.to_json() == '{"clock_us":3,"offsets":{"a":{},"b":{"0":7,"1":5}}}'


def test_a_fence_does_not_change_with_what_it_was_made_of() -> None:
    ends = {"a": {0: 1}}
    fence = Fence(ends)
    ends["a"][0] = 2
    assert fence.offsets == {"a": {0: 1}}


def test_lag_is_counted_over_what_is_asked_for() -> None:
    fence = Fence({"a": {0: 10, 1: 4}, "b": {0: 3}})
    assert fence.lag_behind({"a": {0: 12, 1: 4}, "b": {0: 1}}) == 2
    assert fence.lag_behind({"a": {0: 10, 1: 4, 2: 6}, "new": {0: 1}}) == 7
    assert fence.lag_behind({}) == 0
