"""The log: where events are kept, in order.

A `topic` has partitions. A `partition` adds frames to its `tail` and reads them back (`reading`); a full `segment`
is sealed (`sealing`, `sealed`) and named in the `manifest`; `retention` and `compaction` let go of what is not
needed; `recovery` mends what a crash left behind; `upkeep` does all that in the background. How bytes reach the
disk is in `files`.
"""
