"""Groups: the parts of an input that never meet, so that one can be computed again without the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as types

from penstock.views.keys import key_hashes
from penstock.views.values import one_array


@dataclass(frozen=True)
class Groups:
    """Columns that name the group of a row, and the types they are compared in.

    Two inputs may hold the same group in columns of different names and widths: a join of an int with a bigint.
    """

    columns: tuple[str, ...]
    kinds: tuple[pa.DataType, ...]

    def of(self, table: pa.Table) -> pa.Array:
        """A hash of the group of each row. NULL is a group of its own."""
        named = {
            str(number): one_array(table.column(name)).cast(kind)
            for number, (name, kind) in enumerate(zip(self.columns, self.kinds, strict=True))
        }
        return key_hashes(pa.table(named) if named else table, tuple(named))


def common_kinds(kinds: Sequence[Sequence[pa.DataType]]) -> tuple[pa.DataType, ...]:
    """For each part of a group, a type that holds the values of all inputs."""
    return tuple(_common(list(part)) for part in zip(*kinds, strict=True))


def _common(kinds: list[pa.DataType]) -> pa.DataType:
    if all(kind == kinds[0] for kind in kinds):
        return kinds[0]
    if all(types.is_integer(kind) for kind in kinds):
        return pa.int64()
    if all(types.is_integer(kind) or types.is_decimal(kind) for kind in kinds):
        return pa.decimal128(38, max(kind.scale for kind in kinds if types.is_decimal(kind)))
    if all(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) for kind in kinds):
        return pa.float64()
    return pa.string()
