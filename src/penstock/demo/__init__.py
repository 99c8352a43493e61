"""The log at work, in one command: `make demo`.

Several processes produce, two consumer groups read, one producer and one consumer are killed in the middle, and then
everything is counted: what was acknowledged, what is in the log, and what each group received.
"""
