"""The log: where events are kept, in order.

An event passes `encode` (does it fit the schema?), `keys` (which partition?), `producer` (gathered into batches),
`partition` (framed, written, synced, acknowledged), `segment` (hot), `sealed` (cold), and leaves through `reading`,
`consumer` or `source` (Spark).
"""
