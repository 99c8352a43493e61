"""Distinct counts: of all values' hashes the 2**lg_k smallest, and from how close they lie the number of all.

Spark computes the sketches (theta_sketch_agg over xxhash64 of the value, so that any type can be counted). What is kept
is the set of smallest hashes and the bound below which all are known (theta). A step cuts both down to the 2**lg_k
smallest, with theta the next one: that depends on the set of values alone, not on their order nor on the cuts. Below
2**lg_k different values the count is exact, above it the standard error is 1 / sqrt(2**lg_k).
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.aggregates.partials import binary, finishing, merging, option, part
from penstock.upkeep.rules import Rule, State

Hashes = npt.NDArray[np.uint64]

EVERYTHING = 2**63 - 1
"""The theta of a sketch that has seen few values: it knows all of them."""

_HEAD = struct.Struct("<B7xQ")
_COMPRESSED = 4
_SMALL = 1_000
"""Below this many bytes Python's own sets are quicker than numpy."""
_EMPTY, _SINGLE = 1 << 2, 1 << 5


def _compact(partial: pa.Array) -> pa.Array:
    lg_k = option(partial, "lg_k")
    return binary(
        None if sketch is None else _state(lg_k, *hashes_of(sketch)) for sketch in part(partial, "sketch").to_pylist()
    )


def _state(lg_k: int, theta: int, hashes: Hashes) -> bytes:
    """The smallest hashes, in order, and the bound below which there are no others."""
    if len(hashes) > 1 << lg_k:
        theta, hashes = int(hashes[1 << lg_k]), hashes[: 1 << lg_k]
    return _HEAD.pack(lg_k, theta) + hashes.astype("<u8").tobytes()


def _merge(kept: bytes, new: bytes) -> bytes:
    (lg_k, theta), (other_lg_k, other_theta) = _HEAD.unpack_from(kept), _HEAD.unpack_from(new)
    assert lg_k == other_lg_k, (lg_k, other_lg_k)
    lower = min(theta, other_theta)
    if len(kept) + len(new) <= _SMALL:
        few = {*memoryview(kept)[_HEAD.size :].cast("Q"), *memoryview(new)[_HEAD.size :].cast("Q")}
        return _state(lg_k, lower, np.array(sorted(each for each in few if each < lower), np.uint64))
    hashes = np.unique(np.concatenate([np.frombuffer(state, "<u8", offset=_HEAD.size) for state in (kept, new)]))
    return _state(lg_k, lower, hashes[: np.searchsorted(hashes, np.uint64(lower))])


def _finish(state: bytes) -> int:
    _, theta = _HEAD.unpack_from(state)
    number = (len(state) - _HEAD.size) // 8
    return number if theta == EVERYTHING else round(number * 2**63 / theta)


def hashes_of(sketch: bytes) -> tuple[int, Hashes]:
    """Theta and the hashes in order, of a compact theta sketch as Spark writes it (DataSketches, versions 3 and 4)."""
    longs, version, flags = sketch[0] & 0x3F, sketch[1], sketch[5]
    if flags & _EMPTY:
        return EVERYTHING, np.empty(0, np.uint64)
    if version == _COMPRESSED:
        return _uncompressed(sketch, longs)
    assert version == 3, f"a theta sketch of version {version}"
    if longs == 1:
        assert flags & _SINGLE, f"a theta sketch with flags {flags:b}"
        return EVERYTHING, np.frombuffer(sketch, "<u8", count=1, offset=8)
    count = int.from_bytes(sketch[8:12], "little")
    theta = int.from_bytes(sketch[16:24], "little") if longs > 2 else EVERYTHING
    return theta, np.sort(np.frombuffer(sketch, "<u8", count=count, offset=8 * longs))


def _uncompressed(sketch: bytes, longs: int) -> tuple[int, Hashes]:
    """Version 4: the differences between hashes, each in as few bits as the largest needs, the highest bit first."""
    bits, length_bytes = sketch[3], sketch[4]
    theta = int.from_bytes(sketch[8:16], "little") if longs > 1 else EVERYTHING
    start = 8 * longs
    count = int.from_bytes(sketch[start : start + length_bytes], "little")
    start += length_bytes
    if len(sketch) <= _SMALL:
        number, spare = int.from_bytes(sketch[start:], "big"), 8 * (len(sketch) - start) - count * bits
        differences = [(number >> (spare + bits * each)) & ((1 << bits) - 1) for each in reversed(range(count))]
        return theta, np.cumsum(np.array(differences, np.uint64))
    packed = np.frombuffer(sketch, np.uint8, offset=start)
    wide = np.zeros((count, 64), np.uint8)
    wide[:, 64 - bits :] = np.unpackbits(packed, count=count * bits).reshape(count, bits)
    return theta, np.cumsum(np.packbits(wide, axis=1).view(">u8").ravel().astype(np.uint64))


DISTINCT = Rule("distinct", merging(_merge), state=State(_compact, finishing(_finish, pa.int64()), pa.int64()))
