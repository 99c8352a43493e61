"""Sums without any rounding, of many groups at once.

A float is a whole number times a power of two, so a sum of floats can be kept as one large whole number. Numbers are
spread over limbs of 32 bits which numpy adds up; only the few limbs of each group become Python's own integers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

LOW = 0xFFFF_FFFF
UNIT = 1126
"""Floats are counted in units of 2**-1126, of which every float, the smallest too, is a whole multiple."""


def exact_sums(groups: Ints, terms: list[tuple[Ints, Ints]], size: int) -> list[int]:
    """For each of `size` groups the sum of `number * 2**position` over all terms; `groups` is in order.

    Positions are not negative. Exact for up to a billion numbers in one call.
    """
    totals = [0] * size
    if len(groups):
        starts = np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]]))
        for numbers, positions in terms:
            _add_to(totals, groups[starts].tolist(), starts, numbers, positions)
    return totals


def _add_to(totals: list[int], groups: list[int], starts: Ints, numbers: Ints, positions: Ints) -> None:
    limb, shift = positions >> 5, positions & 31
    low, high = (numbers & LOW) << shift, (numbers >> 32) << shift
    columns = [low & LOW, (low >> 32) + (high & LOW), high >> 32]
    # Floats of one column are of similar size: there are few limbs to go through.
    limbs = np.flatnonzero(np.bincount(limb)).tolist()
    for each in limbs:
        here = columns if len(limbs) == 1 else [np.where(limb == each, column, 0) for column in columns]
        sums = [np.add.reduceat(column, starts).tolist() for column in here]
        for group, lowest, middle, highest in zip(groups, *sums, strict=True):
            if lowest or middle or highest:
                totals[group] += (lowest + (middle << 32) + (highest << 64)) << (32 * each)


def sums_of_floats(groups: Ints, values: npt.NDArray[np.float64], size: int) -> list[int]:
    """The sums of finite floats, in units of 2**-UNIT."""
    return exact_sums(groups, [_parts(values)], size)


def squares_of_floats(groups: Ints, values: npt.NDArray[np.float64], size: int) -> list[int]:
    """The sums of the squares of finite floats, in units of 2**-(2 * UNIT)."""
    number, position = _parts(values)
    high, low = number >> 27, number & 0x7FF_FFFF
    at = 2 * position
    return exact_sums(groups, [(high * high, at + 54), (high * low, at + 28), (low * low, at)], size)


def _parts(values: npt.NDArray[np.float64]) -> tuple[Ints, Ints]:
    """Each float as number * 2**(position - UNIT)."""
    fraction, exponent = np.frexp(values)
    return (fraction * 2.0**53).astype(np.int64), exponent.astype(np.int64) - 53 + UNIT


def sums_of_integers(groups: Ints, values: Ints, size: int) -> list[int]:
    """The sums of whole numbers."""
    return exact_sums(groups, [_at(0, values)], size)


def squares_of_integers(groups: Ints, values: Ints, size: int) -> list[int]:
    """The sums of the squares of whole numbers, of which the largest have 126 bits."""
    if not len(values) or max(abs(int(values.min())), int(values.max())) < 2**31:
        return sums_of_integers(groups, values * values, size)
    high, middle, low = values >> 42, (values >> 21) & 0x1F_FFFF, values & 0x1F_FFFF
    terms = [
        _at(84, high * high),
        _at(64, high * middle),
        _at(42, middle * middle),
        _at(43, high * low),
        _at(22, middle * low),
        _at(0, low * low),
    ]
    return exact_sums(groups, terms, size)


def sums_of_wide(groups: Ints, words: npt.NDArray[np.uint64], size: int) -> list[int]:
    """The sums of whole numbers of 128 bits, each given as two words, the lower one first, as Arrow keeps decimals."""
    low, high = words[0::2], words[1::2].view(np.int64)
    lowest, lower = (low & np.uint64(LOW)).astype(np.int64), (low >> np.uint64(32)).astype(np.int64)
    return exact_sums(groups, [_at(0, lowest), _at(32, lower), _at(64, high)], size)


def _at(position: int, numbers: Ints) -> tuple[Ints, Ints]:
    return numbers, np.full_like(numbers, position)
