"""What Penstock makes is for its owner alone, whatever the umask, unless a folder is shared with a group."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.access import make_file, make_folders, open_file
from penstock.errors import LogIsPrivate
from penstock.log.folder_log import FolderLog
from penstock.log.log import open_log
from penstock.produce.spill import Spill
from penstock.service.tokens import Tokens
from penstock.settings import LogSettings
from penstock.views.store import open_store
from tests.check.test_checking import flip
from tests.check.test_repair import known, posted, repaired
from tests.produce.test_spill import TOPIC_ID, content


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def fill(folder: Path, access: str = "owner") -> None:
    """Makes one of everything in a folder that is not there yet."""
    with open_log(LogSettings(url=f"dir:{folder / 'log'}", access=access), background=False) as log:
        assert isinstance(log, FolderLog)
        topic = log.create("events", "n int", key="n", compact=True)
        with topic.producer(name="shop") as producer:
            producer.send({"n": 1}, sequence=1)
        topic.seal(active=True)
        with topic.producer() as producer:
            producer.send([{"n": 1}, {"n": "no number"}])
        topic.seal(active=True)
        assert topic.compact()
        with log.consumer("events", group="report") as consumer:
            assert list(consumer.events(timeout="0ms"))
            consumer.commit()
            assert list((folder / "log").rglob("members/*"))  # While it lives, its member has a file.
            check_modes(folder, access == "group")
        log.create("gone", "n int")
        log.delete("gone")
    spill = Spill(folder / "log" / "spill" / "events", TOPIC_ID)
    spill.put(content(1), None)
    spill.let_go()
    directory, path = posted(FolderLog(folder / "repaired", background=False))
    flip(path, 80)
    assert repaired(directory)
    assert known(directory)
    with open_store(f"sqlite:{folder}/views/views.db", lease=timedelta(hours=1)):
        beside = {path.name for path in (folder / "views").iterdir()}
        assert beside == {"views.db", "views.db-wal", "views.db-shm"}
        check_modes(folder, access == "group")
    Tokens(folder / "secret" / "tokens.json").add("name", ["read"])
    check_modes(folder, access == "group")


def check_modes(folder: Path, is_group: bool) -> None:
    wrong = []
    for path in [folder, *folder.rglob("*")]:
        status = path.stat()
        file, directory = (0o660, 0o2770) if is_group and path.is_relative_to(folder / "log") else (0o600, 0o700)
        expected = directory if stat.S_ISDIR(status.st_mode) else file
        if path == folder and is_group:
            expected = 0o710
        if stat.S_IMODE(status.st_mode) != expected:
            wrong.append(f"{path.relative_to(folder)}: {stat.S_IMODE(status.st_mode):04o}, expected {expected:04o}")
    assert not wrong


@pytest.mark.parametrize("mask", [0o022, 0o000])
def test_everything_is_its_owners_alone(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        fill(tmp_path / "data")


@pytest.mark.parametrize("mask", [0o022, 0o000, 0o077])
def test_shared_log_is_its_groups_too(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        fill(tmp_path / "data", "group")


def test_folder_that_is_shared_needs_no_setting(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log").chmod(0o2770)
    with FolderLog(tmp_path / "log", background=False) as log:
        log.create("events", "n int")
    tmp_path.chmod(0o710)
    check_modes(tmp_path, True)


def test_private_log_is_not_taken_for_shared(tmp_path: Path) -> None:
    FolderLog(tmp_path / "log", background=False).create("events", "n int")
    with pytest.raises(LogIsPrivate, match=rf"chgrp -R GROUP {tmp_path}/log; chmod") as raised:
        open_log(LogSettings(url=f"dir:{tmp_path / 'log'}", access="group"))
    assert (raised.value.folder, raised.value.mode) == (tmp_path / "log", 0o700)


def test_command_of_the_refusal_shares_the_log(tmp_path: Path) -> None:
    settings = LogSettings(url=f"dir:{tmp_path / 'log'}", access="group")
    FolderLog(tmp_path / "log", background=False).create("events", "n int")
    with pytest.raises(LogIsPrivate) as raised:
        open_log(settings)
    command = str(raised.value).partition("to share it: ")[2].replace("GROUP", str(os.getegid()))
    subprocess.run(command, shell=True, check=True)
    with open_log(settings, background=False) as log:
        log.create("more", "n int")
    tmp_path.chmod(0o710)
    check_modes(tmp_path, True)


def test_older_log_with_other_modes_goes_on(tmp_path: Path) -> None:
    with FolderLog(tmp_path / "log", background=False) as log, log.create("events", "n int").producer() as producer:
        producer.send({"n": 1})
    for path in [tmp_path / "log", *(tmp_path / "log").rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    with FolderLog(tmp_path / "log", background=False) as log, log.topic("events").producer() as producer:
        producer.send({"n": 2})
        producer.flush()
        assert log.topic("events").end() == {0: 2}
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.system
def test_file_of_another_user_is_opened_as_it_is(tmp_path: Path) -> None:
    make_folders(tmp_path / "shared")
    (tmp_path / "shared").chmod(0o2770)
    path = tmp_path / "shared" / "lock"
    make_file(path)
    path.chmod(0o600)
    os.chown(path, 12345, -1)
    os.close(open_file(path, os.O_RDWR | os.O_CREAT))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
