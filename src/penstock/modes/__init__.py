"""How to run a pipeline: as a batch, or as a stream.

Both take steps (`running`), only of different sizes; a stream that is behind looks one step `ahead`. `engine` prepares
what both need; `run` is what people call.
"""
