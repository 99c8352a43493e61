"""Rows of a view as CSV knows them, for exports and answers."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.printable import FORMULA, NUMBER
from penstock.views.values import Physical, split, to_plain


def csv_rows(columns: Sequence[Physical], rows: pa.Table, *, raw: bool = False) -> pa.Table:
    """As the database has them: a window is two columns, what is nested is JSON. Bytes are hex.

    A text that a spreadsheet would take for a formula begins with an apostrophe, unless `raw`.
    """
    arrays = [to_plain(each).array for each in split(rows, columns)]
    names = [each.name for each in columns]
    is_text = [not raw and pa.types.is_string(rows.schema.field(each.logical).type) for each in columns]
    return pa.table([_shown(array, guards) for array, guards in zip(arrays, is_text, strict=True)], names=names)


def _shown(array: pa.Array, guards: bool) -> pa.Array:
    if pa.types.is_binary(array.type):
        return pa.array([None if each is None else each.hex() for each in array.to_pylist()], pa.string())
    return _without_formulas(array) if guards else array


def _without_formulas(texts: pa.Array) -> pa.Array:
    is_number = pc.match_substring_regex(texts, f"^{NUMBER}$")
    is_formula = pc.and_not(pc.match_substring_regex(texts, FORMULA), is_number)
    return pc.if_else(is_formula, pc.binary_join_element_wise("'", texts, ""), texts)
