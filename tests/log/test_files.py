"""Write rules."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.errors import CorruptionError
from penstock.log import files


def test_a_document_comes_back_as_it_was_written(tmp_path: Path) -> None:
    files.write_document(tmp_path / "a.json", {"n": 1, "text": "ä\ncrc32c 00000000"})
    assert files.read_document(tmp_path / "a.json") == {"n": 1, "text": "ä\ncrc32c 00000000"}
    assert os.listdir(tmp_path) == ["a.json"]


def test_every_prefix_and_every_flipped_byte_of_a_document_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    files.write_document(path, {"n": 1})
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CorruptionError):
            files.read_document(path)
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with pytest.raises(CorruptionError):
            files.read_document(path)


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, chunks, at: real(fd, [bytes(chunks[0])[:3]], at))
    fd = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    assert files.write_all(fd, [b"hello ", b"", memoryview(b"world")], 0) == 11
    os.close(fd)
    assert (tmp_path / "f").read_bytes() == b"hello world"


def test_a_failed_replace_leaves_the_old_content_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.replace_file(tmp_path / "f", b"old")
    monkeypatch.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(OSError(5, "I/O error")))
    with pytest.raises(OSError, match="I/O error"):
        files.replace_file(tmp_path / "f", b"new")
    assert (tmp_path / "f").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["f"]


def test_a_file_is_synced_before_its_name_and_its_directory_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    real_fsync, real_rename = os.fsync, os.rename

    def fsync(fd: int) -> None:
        done.append("directory" if os.path.isdir(f"/proc/self/fd/{fd}") else "file")
        real_fsync(fd)

    def rename(source: Path, target: Path) -> None:
        done.append("rename")
        real_rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", rename)
    files.replace_file(tmp_path / "f", b"content")
    assert done == ["file", "rename", "directory"]


def test_only_one_holds_a_lock(tmp_path: Path) -> None:
    with files.locked(tmp_path / "lock") as first, files.locked(tmp_path / "lock", wait=False) as second:
        assert (first, second) == (True, False)
    with files.locked(tmp_path / "lock", wait=False) as third:
        assert third
    assert (tmp_path / "lock").exists()
