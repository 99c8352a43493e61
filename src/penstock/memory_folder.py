"""Where small files live that never need to reach a disk."""

from __future__ import annotations

from pathlib import Path

IN_MEMORY = Path("/dev/shm")
"""Where Linux keeps files in memory."""


def memory_folder() -> Path | None:
    """A folder in memory; None where the system has none, for the usual temporary folder."""
    return IN_MEMORY if IN_MEMORY.is_dir() else None
