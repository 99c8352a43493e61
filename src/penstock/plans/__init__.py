"""How each view can be kept: read from the plan that its function builds over empty inputs.

`building` calls the function over stand-ins (`stand_in`); `tree` reads Spark's analyzed plan; `keeping` decides, with
`fold` (the whitelist) and `redo` (what never meets: `meeting`, `windows`); `replay` finds what cannot be repeated.
`prepared` runs that same plan over real rows, `carrying` and `surgery` change it so that rows can be found again. All
that touches Spark's insides is in `jvm` and `task`.
"""
