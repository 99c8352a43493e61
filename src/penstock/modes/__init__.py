"""How to run a pipeline: as a batch, as a stream, as lambda or as kappa.

All take steps (`running`), only of different sizes; a stream that is behind looks some steps `ahead`. What is built
while a stream goes on is built `beside` it: the batch `rounds` of lambda, the `replays` of kappa. `switching` makes
another generation the one people read, `rollback` takes that back, `compared` tells what differs. `engine` prepares
what all of them need; `journal` notes how it goes; `run` is what people call.
"""
