"""Consume: out of the log, alone or in a group.

A `consumer` takes from its `intake`, which keeps a `position` in each partition and sleeps in `wakeup`. In a
`group` it has a `seat`, kept by its `attendance`; `membership` and `assignment` say who reads what, in a
`versioned` document.
"""
