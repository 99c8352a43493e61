"""Mean, variance and standard deviation: the exact sums of values and of their squares, divided once, at the end.

The state is the number of values, their sum and (for the variance) the sum of their squares, as whole numbers with an
exponent, however many digits that takes. Nothing is ever rounded before the number is shown; so the order of events and
the cuts between steps change no bit, and nothing is lost by subtracting large numbers that are nearly equal.
"""

from __future__ import annotations

import math
import struct
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.aggregates import exact_sums
from penstock.aggregates.partials import binary, finishing, flat, merging, option, part
from penstock.errors.running import AggregateTypeError
from penstock.upkeep.rules import Rule, State

NAN, INFINITY, MINUS_INFINITY = 1, 2, 4
SQUARES, SAMPLE, ROOT, DECIMAL = 1, 2, 4, 8

ROOT_BITS = 64

_HEAD = struct.Struct("<BBq")
_NUMBER = struct.Struct("<hH")


class Moments(NamedTuple):
    """What is kept of one group."""

    kind: int
    """Which aggregate it is, as bits: with SQUARES, of a SAMPLE, the ROOT of it; of DECIMALs, with exponents of ten."""
    special: int
    """Which of NAN, INFINITY and MINUS_INFINITY were among the values."""
    values: int
    """How many there were, the special ones too."""
    total: tuple[int, int]
    """A whole number and an exponent."""
    squares: tuple[int, int] = (0, 0)

    def to_bytes(self) -> bytes:
        """The state as it is stored: the same bytes for the same values in any order."""
        head = _HEAD.pack(self.kind, self.special, self.values) + _packed(self.total)
        return head + _packed(self.squares) if self.kind & SQUARES else head

    @classmethod
    def from_bytes(cls, state: bytes) -> Moments:
        """The state again."""
        kind, special, count = _HEAD.unpack_from(state)
        total, end = _unpacked(state, _HEAD.size)
        squares = _unpacked(state, end)[0] if kind & SQUARES else (0, 0)
        return cls(kind, special, count, total, squares)

    def merged(self, other: Moments) -> Moments:
        """The state of both groups together."""
        assert self.kind == other.kind, (self.kind, other.kind)
        return Moments(
            self.kind,
            self.special | other.special,
            self.values + other.values,
            _added(self.total, other.total, self.base),
            _added(self.squares, other.squares, self.base) if self.kind & SQUARES else (0, 0),
        )

    @property
    def base(self) -> int:
        """What exponents are of."""
        return 10 if self.kind & DECIMAL else 2

    def finished(self) -> float | None:
        """The mean or variance or standard deviation, rounded once; of nothing, NULL."""
        if self.kind & SQUARES:
            return self._spread()
        if self.values == 0:
            return None
        if self.special:
            return {INFINITY: math.inf, MINUS_INFINITY: -math.inf}.get(self.special, math.nan)
        return _divided(self.total, self.base, self.values)

    def _spread(self) -> float | None:
        freedom = self.values - 1 if self.kind & SAMPLE else self.values
        if freedom <= 0:
            return None
        if self.special:
            return math.nan
        (squares, exponent), (total, half) = self.squares, self.total
        above = _added((self.values * squares, exponent), (-total * total, 2 * half), self.base)
        rounded = _root if self.kind & ROOT else _divided
        return rounded(above, self.base, self.values * freedom)


def _compact_mean(partial: pa.Array) -> pa.Array:
    return _compact(partial, "mean", 0)


def _compact_variance(partial: pa.Array) -> pa.Array:
    sample = SAMPLE if option(partial, "sample") else 0
    root = ROOT if option(partial, "root") else 0
    return _compact(partial, "variance", SQUARES | sample | root)


def _compact(partial: pa.Array, rule: str, kind: int) -> pa.Array:
    size = len(partial)
    groups, values = flat(part(partial, "values"))
    special, scale = np.zeros(size, np.int64), 0
    counts = np.bincount(groups, minlength=size).tolist()
    squares = [0] * size
    if pa.types.is_floating(values.type):
        floats = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
        for bit, found in ((NAN, np.isnan(floats)), (INFINITY, floats == np.inf), (MINUS_INFINITY, floats == -np.inf)):
            special[groups[found]] |= bit
        is_finite = np.isfinite(floats)
        groups, floats, scale = groups[is_finite], floats[is_finite], exact_sums.UNIT
        totals = exact_sums.sums_of_floats(groups, floats, size)
        if kind & SQUARES:
            squares = exact_sums.squares_of_floats(groups, floats, size)
    elif pa.types.is_integer(values.type) or pa.types.is_null(values.type):
        integers = values.cast(pa.int64()).to_numpy(zero_copy_only=False)
        totals = exact_sums.sums_of_integers(groups, integers, size)
        if kind & SQUARES:
            squares = exact_sums.squares_of_integers(groups, integers, size)
    elif pa.types.is_decimal128(values.type):
        kind, scale = kind | DECIMAL, values.type.scale
        totals, squares = _of_decimals(groups, values, size, bool(kind & SQUARES))
    else:
        raise AggregateTypeError(rule, str(values.type), "whole numbers, decimals, floats or doubles")
    shorten = (lambda number, exponent: (number, exponent)) if kind & DECIMAL else _shortest
    return binary(
        Moments(kind, one, count, shorten(total, -scale), shorten(square, -2 * scale)).to_bytes() if is_there else None
        for is_there, one, count, total, square in zip(
            pc.is_valid(partial).to_pylist(), special.tolist(), counts, totals, squares, strict=True
        )
    )


def _of_decimals(
    groups: exact_sums.Ints, values: pa.Array, size: int, with_squares: bool
) -> tuple[list[int], list[int]]:
    # Counted: the buffer of no values at all may be of any size.
    buffer = values.buffers()[1] if len(values) else b""
    words = np.frombuffer(buffer, np.uint64, count=2 * (values.offset + len(values)) if buffer else -1)
    words = words[2 * values.offset :]
    squares = [0] * size
    if with_squares:
        pairs = zip(groups.tolist(), words[0::2].tolist(), words[1::2].view(np.int64).tolist(), strict=True)
        for group, low, high in pairs:
            squares[group] += ((high << 64) | low) ** 2
    return exact_sums.sums_of_wide(groups, words, size), squares


def _shortest(number: int, exponent: int) -> tuple[int, int]:
    """The same number of two's power with an odd number in front, so that it has one form only; 0 is (0, 0)."""
    if number == 0:
        return 0, 0
    zeros = (number & -number).bit_length() - 1
    return number >> zeros, exponent + zeros


def _added(one: tuple[int, int], other: tuple[int, int], base: int) -> tuple[int, int]:
    if base == 2:
        exponent = min(one[1], other[1])
        return _shortest((one[0] << (one[1] - exponent)) + (other[0] << (other[1] - exponent)), exponent)
    assert one[1] == other[1], f"decimals of two scales: {one[1]} and {other[1]}"
    return one[0] + other[0], one[1]


def _divided(number: tuple[int, int], base: int, by: int) -> float:
    """The nearest float: Python divides whole numbers of any length with one rounding."""
    above, below = _fraction(number, base, by)
    try:
        return above / below
    except OverflowError:
        return math.inf if above > 0 else -math.inf


def _root(number: tuple[int, int], base: int, by: int) -> float:
    """The float nearest to the root: more bits of it than a float has, and one that says whether there were others."""
    above, below = _fraction(number, base, by)
    half_shift = max(0, (ROOT_BITS * 2 - above.bit_length() + below.bit_length()) // 2 + 1)
    above <<= 2 * half_shift
    root = math.isqrt(above // below)
    return (2 * root + (root * root * below != above)) / (2 << half_shift)


def _fraction(number: tuple[int, int], base: int, by: int) -> tuple[int, int]:
    above, exponent = number
    power = int(base ** abs(exponent))
    return (above * power, by) if exponent >= 0 else (above, by * power)


def _packed(number: tuple[int, int]) -> bytes:
    length = number[0].bit_length() // 8 + 1
    return _NUMBER.pack(number[1], length) + number[0].to_bytes(length, "little", signed=True)


def _unpacked(state: bytes, start: int) -> tuple[tuple[int, int], int]:
    exponent, length = _NUMBER.unpack_from(state, start)
    start += _NUMBER.size
    return (int.from_bytes(state[start : start + length], "little", signed=True), exponent), start + length


def _merge(kept: bytes, new: bytes) -> bytes:
    return Moments.from_bytes(kept).merged(Moments.from_bytes(new)).to_bytes()


def _finish(state: bytes) -> float | None:
    return Moments.from_bytes(state).finished()


_visible = finishing(_finish, pa.float64())

MEAN = Rule("mean", merging(_merge), state=State(_compact_mean, _visible, pa.float64()))
VARIANCE = Rule("variance", merging(_merge), state=State(_compact_variance, _visible, pa.float64()))
