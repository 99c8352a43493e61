"""Produce: from a program into the log.

A `producer` puts events into its `buffer`; the `sender` thread encodes and routes them over `lanes`, one for each
partition; an `ack` answers when they are on disk. What has no room waits in the `spill`, what does not fit goes to
the `dead_letters`.
"""
