"""What Spark's job returns for an aggregate of `penstock.agg`, and how to take it apart.

It is one struct whose only field is named `__penstock_<rule>`, whatever the user's alias: that is how it is known.
Inside are the values or sketch of the group, and the options that merging or finishing needs, the same in every row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

PREFIX = "__penstock_"


def state_column(field: pa.Field) -> str | None:
    """The rule of a column that holds an aggregate of `penstock.agg`, as Spark returned it; None for any other."""
    if not pa.types.is_struct(field.type) or field.type.num_fields != 1:
        return None
    name: str = field.type.field(0).name
    return name.removeprefix(PREFIX) if name.startswith(PREFIX) else None


def part(partial: pa.Array, name: str) -> pa.Array:
    """One field of every group."""
    outer = partial.type.field(0)
    return pc.struct_field(partial, [0, outer.type.get_field_index(name)])


def option(partial: pa.Array, name: str) -> Any:
    """The value of an option, which is the same for all groups; None where there is no group."""
    values = part(partial, name).drop_null()
    return values[0].as_py() if len(values) else None


def flat(lists: pa.Array) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """All values of all lists, each with the number of its list. Lists that are NULL are empty."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return np.repeat(np.arange(len(lists), dtype=np.int64), lengths), pc.list_flatten(lists)


def merging(merge: Callable[[bytes, bytes], bytes]) -> Callable[[pa.Array, pa.Array], pa.Array]:
    """Merges states one by one; where one side is NULL the other wins."""

    def merge_arrays(kept: pa.Array, new: pa.Array) -> pa.Array:
        pairs = zip(kept.to_pylist(), new.to_pylist(), strict=True)
        return binary(b if a is None else a if b is None else merge(a, b) for a, b in pairs)

    return merge_arrays


def finishing(finish: Callable[[bytes], Any], visible: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    """What readers see of states, one by one; of no state, NULL."""
    return lambda states: pa.array(
        [None if state is None else finish(state) for state in states.to_pylist()], type=visible
    )


def binary(states: Iterable[bytes | None]) -> pa.Array:
    """States as a column."""
    return pa.array(list(states), type=pa.binary())
