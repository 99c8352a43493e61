"""How two values of one aggregate become one: count, sum, min, max, every, any and the bit aggregates.

Each function takes two aligned arrays, what is kept and what came, and gives the merged one. NULL is "nothing yet": the
other side wins. The meaning is Spark's, so that any number of steps gives what one step would have given:

- NaN is greater than every number and equal to itself; -0.0 is kept as 0.0, for which of the two Spark shows depends
  on the order of rows.
- Text and binary are ordered by their bytes.
- Whole numbers and decimals are exact. A sum that its column cannot hold raises MergeOverflow; it never wraps around.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors.running import MergeOverflow

Merge = Callable[[pa.Array, pa.Array], pa.Array]
Change = Callable[[pa.Array], pa.Array]


@dataclass(frozen=True)
class State:
    """What an aggregate of `penstock.agg` keeps instead of its value: bytes that merge exactly."""

    compact: Change
    """What Spark's job returned, as states."""
    finish: Change
    """What readers see of these states."""
    visible_type: pa.DataType


@dataclass(frozen=True)
class Rule:
    """One way to merge a column."""

    name: str
    merge: Merge
    """What is kept and what came, aligned, become one; NULL on either side is "nothing yet"."""
    subtract: Merge | None = None
    """The way back, where there is one: what is kept, without what is gone. Ask `undoes` first."""
    state: State | None = None
    """For aggregates of `penstock.agg`; the value of any other is its own state."""

    @property
    def has_state(self) -> bool:
        """Whether a hidden state is merged and stored beside the value that readers see."""
        return self.state is not None

    @property
    def state_type(self) -> pa.DataType | None:
        """The type of a stored state; None where the value is its own."""
        return pa.binary() if self.state else None

    def finished_type(self, given: pa.DataType) -> pa.DataType:
        """The type that readers see, for a column that Spark's job returned as `given`."""
        return self.state.visible_type if self.state else given

    def compact(self, partial: pa.Array) -> pa.Array:
        """What Spark's job returned, in the form that merges. Raises AggregateTypeError, even where there is no row."""
        return self.state.compact(partial) if self.state else partial

    def finish(self, states: pa.Array) -> pa.Array:
        """What readers see."""
        return self.state.finish(states) if self.state else states

    def undoes(self, kept: pa.DataType) -> bool:
        """Whether `subtract` is exact for values of this type."""
        return self.subtract is not None and not pa.types.is_floating(kept)


def _add(kept: pa.Array, new: pa.Array) -> pa.Array:
    return _or_the_one_there(_calculate(pc.add_checked, kept, new), kept, new)


def _or_the_one_there(both: pa.Array, kept: pa.Array, new: pa.Array) -> pa.Array:
    """What both sides make, and where one of them is NULL, the other."""
    return pc.coalesce(both, kept, new) if both.null_count else both


def _subtract(kept: pa.Array, gone: pa.Array) -> pa.Array:
    return pc.coalesce(_calculate(pc.subtract_checked, kept, gone), kept)


def _calculate(function: Merge, left: pa.Array, right: pa.Array) -> pa.Array:
    """Adds or subtracts within the column's own type; NULL where either side is NULL."""
    if not pa.types.is_decimal(left.type):
        try:
            return function(left, right)
        except pa.ArrowInvalid as failure:
            raise MergeOverflow("sum", str(left.type), _first_overflow(function, left, right)) from failure
    # 128 bits are full at 38 digits, and Arrow widens the result by one: there is room for it in 256.
    room = pa.decimal256(min(left.type.precision + 1, 75), left.type.scale)
    wide = function(left.cast(room), right.cast(room))
    try:
        return wide.cast(left.type)
    except pa.ArrowInvalid as failure:
        raise MergeOverflow("sum", str(left.type), _first_unfit(wide, left.type)) from failure


def _first_overflow(function: Merge, left: pa.Array, right: pa.Array) -> int:
    """The first row that cannot be calculated: halve until one is left."""
    low, high = 0, len(left)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            function(left[low:middle], right[low:middle])
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return low


def _first_unfit(wide: pa.Array, narrow: pa.DataType) -> int:
    return _first_overflow(lambda rows, _: rows.cast(narrow), wide, wide)


def _least(kept: pa.Array, new: pa.Array) -> pa.Array:
    if pa.types.is_floating(kept.type):
        return _of_floats(np.fmin, kept, new)  # NaN only where both are.
    return _or_the_one_there(pc.if_else(pc.less(new, kept), new, kept), kept, new)


def _greatest(kept: pa.Array, new: pa.Array) -> pa.Array:
    if pa.types.is_floating(kept.type):
        return _of_floats(np.maximum, kept, new)  # NaN where either is.
    return _or_the_one_there(pc.if_else(pc.less(kept, new), new, kept), kept, new)


def _of_floats(function: Callable[..., npt.NDArray[Any]], kept: pa.Array, new: pa.Array) -> pa.Array:
    sides = [pc.coalesce(kept, new), pc.coalesce(new, kept)] if kept.null_count or new.null_count else [kept, new]
    is_null = sides[0].is_null().to_numpy(zero_copy_only=False) if sides[0].null_count else None
    numbers = function(*(each.to_numpy(zero_copy_only=False) for each in sides)) + 0.0  # -0.0 + 0.0 is 0.0
    return pa.array(numbers, kept.type, mask=is_null)


def _present(function: Merge) -> Merge:
    """Applies `function` where both sides are there, and takes the side that is there elsewhere."""
    return lambda kept, new: _or_the_one_there(function(kept, new), kept, new)


PLAIN_RULES = {
    rule.name: rule
    for rule in (
        Rule("count", _add, _subtract),
        Rule("sum", _add, _subtract),
        Rule("min", _least),
        Rule("max", _greatest),
        Rule("every", _present(pc.and_)),
        Rule("any", _present(pc.or_)),
        Rule("bit_and", _present(pc.bit_wise_and)),
        Rule("bit_or", _present(pc.bit_wise_or)),
        Rule("bit_xor", _present(pc.bit_wise_xor)),
    )
}
