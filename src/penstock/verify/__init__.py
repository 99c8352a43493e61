"""Do all ways to run a pipeline agree?

`runs` runs it over a recorded log in one way, along the steps that `cuts` plans; `killed` does so in processes that are
killed. `records` finds the log records behind a row, `causes` guesses why it differs.
`verify` does all of it and gives a `report`.
"""
