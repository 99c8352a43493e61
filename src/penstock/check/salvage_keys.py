"""What can still be read of a damaged file of idempotency keys, and the file made whole again."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

from penstock.log.keys import BLOCK_MAGIC, HEADER_BYTES, block_at, file_header, file_id_of, is_header, skipping


@dataclass(frozen=True)
class SalvagedKeys:
    """What is left of a file of keys."""

    content: bytes
    """The file made whole: everything that can be read stays where it is, so that ends which are known stay true."""
    keys: int
    """How many can be read."""
    lost_bytes: int
    is_whole: bool


def salvage_keys(path: Path, stop: int | None, now_us: int) -> SalvagedKeys:
    """What can be read of a file of keys, which may be missing, up to `stop`, or to its own end. Changes nothing."""
    found = path.read_bytes() if path.exists() else b""
    content = memoryview(found[:stop] if stop is None else found[:stop].ljust(stop, b"\0"))
    header, is_header_whole = _mended_header(bytes(content[:HEADER_BYTES]), now_us)
    file_id = file_id_of(header)
    made, keys, lost, position = [header], 0, 0, HEADER_BYTES
    while position < len(content):
        block = block_at(content, position, file_id, position)
        if block is not None:
            entries, after = block
            keys += len(entries)
            made.append(bytes(content[position:after]))
        else:
            after = _next_block(content, position, file_id)
            lost += after - position
            if after < len(content) or stop is not None:  # An older file may just end sooner.
                made.append(skipping(file_id, position, after))
        position = after
    is_whole = is_header_whole and not lost and len(found) >= len(content)
    return SalvagedKeys(b"".join(made), keys, lost, is_whole)


def _mended_header(header: bytes, now_us: int) -> tuple[bytes, bool]:
    """The header, if need be with one bit turned back, or else a new one; and whether it is whole as it is."""
    mended = bytearray(header.ljust(HEADER_BYTES, b"\0"))
    if is_header(mended):
        return bytes(mended), True
    for bit in range(8 * HEADER_BYTES):
        mended[bit // 8] ^= 1 << bit % 8
        if is_header(mended):
            return bytes(mended), False
        mended[bit // 8] ^= 1 << bit % 8
    return file_header(secrets.randbits(64), now_us), False


def _next_block(content: memoryview, position: int, file_id: int) -> int:
    """Where the next whole block behind a damaged one begins; the end if there is none."""
    text = bytes(content)
    while (position := text.find(BLOCK_MAGIC, position + 1)) >= 0:
        if block_at(content, position, file_id, position) is not None:
            return position
    return len(content)
