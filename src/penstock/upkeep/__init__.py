"""How a view is kept: from one cut of the log to the next, as ordinary Spark jobs.

A `step` brings the `slices` of the topics between two cuts. Each view has a keeper, which turns what is new into
`changes` of its rows: `fold` computes over the slice alone and merges (`merge`); `redo` finds what the slice touched,
reads just that (`kept_rows`) and computes it again; `whole` computes everything again. `compiled` finds out which.
"""
