"""What Spark's job would return for an aggregate of `penstock.agg`, made in Python: for tests over many cuts."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.aggregates.buckets import INFINITY, MIDDLE, NAN, ZERO, log_gamma


def moments(rule: str, kind: pa.DataType, *groups: Sequence[Any], sample: bool = True, root: bool = False) -> pa.Array:
    """The partial of a mean or a variance."""
    parts = {"values": pa.array([[each for each in group if each is not None] for group in groups], pa.list_(kind))}
    if rule == "variance":
        parts |= {"sample": pa.array([sample] * len(groups)), "root": pa.array([root] * len(groups))}
    return wrapped(rule, parts)


def distinct(lg_k: int, *groups: Sequence[Any]) -> pa.Array:
    """The partial of a distinct count, with sketches that are not compressed and know all their values."""
    sketches = [sketch_of({hash_of(each) for each in group if each is not None}) for group in groups]
    return wrapped(
        "distinct", {"sketch": pa.array(sketches, pa.binary()), "lg_k": pa.array([lg_k] * len(groups), pa.int32())}
    )


def hash_of(value: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(value).encode(), digest_size=8).digest(), "little") >> 1


def sketch_of(hashes: set[int]) -> bytes:
    """DataSketches' serial version 3, ordered and compact."""
    if not hashes:
        return bytes([1, 3, 3, 0, 0, 0b11110, 0, 0])
    head = bytes([2, 3, 3, 0, 0, 0b11010, 0, 0]) + len(hashes).to_bytes(8, "little")
    return head + b"".join(each.to_bytes(8, "little") for each in sorted(hashes))


def quantiles(at: list[float], relative_error: float, *groups: Sequence[Any]) -> pa.Array:
    """The partial of quantiles."""
    buckets = [[bucket_of(each, relative_error) for each in group if each is not None] for group in groups]
    size = len(groups)
    return wrapped(
        "quantiles",
        {
            "buckets": pa.array(buckets, pa.list_(pa.int32())),
            "relative_error": pa.array([relative_error] * size, pa.float64()),
            "at": pa.array([at] * size, pa.list_(pa.float64())),
        },
    )


def bucket_of(value: float, relative_error: float) -> int:
    if math.isnan(value):
        return NAN
    if value == 0:
        return ZERO
    if math.isinf(value):
        size = INFINITY
    else:
        size = MIDDLE + math.ceil(math.log(abs(value)) / log_gamma(relative_error))
    return int(math.copysign(size, value))


def wrapped(rule: str, parts: dict[str, pa.Array]) -> pa.Array:
    inner = pa.StructArray.from_arrays(list(parts.values()), names=list(parts))
    return pa.StructArray.from_arrays([inner], names=[f"__penstock_{rule}"])
