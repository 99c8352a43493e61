"""Do all ways to run a pipeline agree?

`runs` runs it over a recorded log in one way, along the steps that `cuts` plans; `singles` chooses records that get a
step of their own. `killed` runs it in processes that are killed, `elsewhere` in one with another environment
(`processes`, `child`), `plain` without the engine. `records` finds the log records behind a row, `causes` guesses why
it differs. `verify` does all of it and gives a `report`.
"""
