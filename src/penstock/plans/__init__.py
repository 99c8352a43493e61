"""How each view can be kept: read from the plan that its function builds over empty inputs.

`building` calls the function over stand-ins (`stand_in`); `tree` reads Spark's analyzed plan; `keeping` decides, with
`fold` (the whitelist) and `redo` (what never meets: `meeting`, `windows`); `replay` finds what cannot be repeated.
`penstock.spark.private`, which touches Spark's insides, runs that same plan over real rows and changes it so that rows
can be found again; `collect` asks for several at once.
"""
