"""Quantiles: values counted in fixed buckets, each as wide as the error that is allowed.

With relative error a, bucket i holds the values from g**(i-1) to g**i with g = (1 + a) / (1 - a), as in DDSketch; the
value shown for it is never further than a from any value inside. The borders are fixed beforehand, so counts just add
up, in any order. Zero, the negative numbers, both infinities and NaN (greater than all, as everywhere in Spark) have
buckets of their own.
"""

from __future__ import annotations

import math
import struct
import sys
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.aggregates.partials import binary, finishing, flat, option, part
from penstock.upkeep.rules import Rule, State

NAN, INFINITY, ZERO, MIDDLE = 2**31 - 1, 2**31 - 2, 0, 2**30
"""Numbers of buckets: MIDDLE + i for positive values, -(MIDDLE + i) for negative ones. Their order is the values'."""

Ints = npt.NDArray[np.int64]

ENTRY = np.dtype([("bucket", "<i4"), ("count", "<i8")])
_HEAD = struct.Struct("<dI")


def log_gamma(relative_error: float) -> float:
    """The natural logarithm of g, the ratio of a bucket's two borders."""
    return math.log1p(relative_error) - math.log1p(-relative_error)


@lru_cache(maxsize=100_000)
def bucket_value(bucket: int, relative_error: float) -> float:
    """The value shown for a bucket."""
    if bucket < 0:
        return -bucket_value(-bucket, relative_error)
    if bucket in (NAN, INFINITY, ZERO):
        return {NAN: math.nan, INFINITY: math.inf, ZERO: 0.0}[bucket]
    # The middle of a bucket is 2 * g**i / (g + 1), which is g**i * (1 - a).
    try:
        return math.exp((bucket - MIDDLE) * log_gamma(relative_error)) * (1 - relative_error)
    except OverflowError:
        return sys.float_info.max


def _compact(partial: pa.Array) -> pa.Array:
    head = _head(option(partial, "relative_error") or 0.0, option(partial, "at") or [])
    groups, buckets = flat(part(partial, "buckets"))
    numbers = buckets.to_numpy(zero_copy_only=False).astype(np.int64)
    states = _states(head, groups, numbers, np.ones(len(groups), np.int64), len(partial))
    return binary(
        state if is_there else None for is_there, state in zip(pc.is_valid(partial).to_pylist(), states, strict=True)
    )


def _head(relative_error: float, at: list[float]) -> bytes:
    return _HEAD.pack(relative_error, len(at)) + struct.pack(f"<{len(at)}d", *at)


def _states(head: bytes, groups: Ints, buckets: Ints, counts: Ints, size: int) -> list[bytes]:
    """The state of each group, from counts in any order: the head, then every bucket with its count, in order."""
    place = (groups << 32) + (buckets + 2**31)
    order = np.argsort(place, kind="stable")
    place = place[order]
    starts = np.flatnonzero(np.concatenate([[True], place[1:] != place[:-1]])) if len(place) else order
    entries = np.empty(len(starts), ENTRY)
    entries["bucket"] = (place[starts] & 0xFFFF_FFFF) - 2**31
    entries["count"] = np.add.reduceat(counts[order], starts) if len(place) else 0
    ends = (np.searchsorted(place[starts] >> 32, np.arange(size + 1)) * ENTRY.itemsize).tolist()
    packed = entries.tobytes()
    return [head + packed[start:end] for start, end in pairwise(ends)]


def _merge(kept: pa.Array, new: pa.Array) -> pa.Array:
    """All groups at once: to merge two states is to count again, with the counts of both."""
    pairs = list(zip(kept.to_pylist(), new.to_pylist(), strict=True))
    both = [pair for pair in pairs if None not in pair]
    if not both:
        return binary(new if old is None else old for old, new in pairs)
    head = _head_of(both[0][0])
    assert all(state.startswith(head) for pair in both for state in pair), "quantiles of other options do not merge"
    entries = np.frombuffer(b"".join(state[len(head) :] for pair in both for state in pair), ENTRY)
    lengths = [(len(old) + len(new) - 2 * len(head)) // ENTRY.itemsize for old, new in both]
    groups = np.repeat(np.arange(len(both), dtype=np.int64), lengths)
    merged = iter(_states(head, groups, entries["bucket"].astype(np.int64), entries["count"], len(both)))
    return binary(next(merged) if None not in pair else pair[1] if pair[0] is None else pair[0] for pair in pairs)


def _head_of(state: bytes) -> bytes:
    return state[: _HEAD.size + 8 * _HEAD.unpack_from(state)[1]]


def _finish(state: bytes) -> list[float] | None:
    head = _head_of(state)
    if len(state) == len(head):
        return None
    relative_error, shares = _options(head)
    entries = np.frombuffer(state, ENTRY, offset=len(head))
    below = np.cumsum(entries["count"])
    total = int(below[-1])
    ranks = [max(1, -(-above * total // under)) for above, under in shares]
    return [bucket_value(each, relative_error) for each in entries["bucket"][np.searchsorted(below, ranks)].tolist()]


@lru_cache(maxsize=64)
def _options(head: bytes) -> tuple[float, list[tuple[int, int]]]:
    """The relative error and the shares as fractions: 0.99 means 99/100, not the nearest float."""
    relative_error, number = _HEAD.unpack_from(head)
    shares = struct.unpack_from(f"<{number}d", head, _HEAD.size)
    return relative_error, [Fraction(repr(share)).as_integer_ratio() for share in shares]


_SHOWN = pa.list_(pa.float64())

QUANTILES = Rule("quantiles", _merge, state=State(_compact, finishing(_finish, _SHOWN), _SHOWN))
