"""Who may use the files that Penstock makes: their owner alone, or the group of a folder that is shared.

Files are 0600 and folders 0700, whatever the umask. In a folder of mode 2770 or more (its group may write, and what is
made in it belongs to that group) they are 0660 and 2770. So a folder decides for all that will be made in it, and every
process finds the decision on the disk: other users' commands, library code without settings, and Spark's tasks. What is
there already keeps its mode.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

PRIVATE_UMASK = 0o077
"""For processes that are started, and make files of their own: the JVM and its Python workers."""
_SHARED_FOLDER = stat.S_ISGID | stat.S_IRWXU | stat.S_IRWXG
_SHARED_FILE = 0o660


def open_file(path: Path, flags: int) -> int:
    """Opens a file as `os.open` does. If O_CREAT makes it, only its owner may use it, or also the folder's group."""
    fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        if flags & os.O_CREAT and is_shared(path.parent):
            status = os.fstat(fd)
            if status.st_uid == os.geteuid() and status.st_mode & _SHARED_FILE != _SHARED_FILE:
                os.fchmod(fd, _SHARED_FILE)
    except BaseException:
        os.close(fd)
        raise
    return fd


def make_file(path: Path) -> None:
    """Makes an empty file for a library to write to, which opens it by its name. Harmless if it is there."""
    os.close(open_file(path, os.O_WRONLY | os.O_CREAT))


def make_folder(path: Path) -> None:
    """Makes a folder, not those above it. FileExistsError if it is there."""
    path.mkdir(0o700)
    if is_shared(path.parent):
        path.chmod(_SHARED_FOLDER)


def make_folders(path: Path) -> None:
    """Makes a folder and those above it. Harmless if they are there."""
    if not path.is_dir():
        make_folders(path.parent)
        with suppress(FileExistsError):
            make_folder(path)


def is_shared(folder: Path) -> bool:
    """Whether what is made in the folder is for its group, too."""
    try:
        mode = folder.stat().st_mode
    except OSError:
        return False
    return mode & _SHARED_FOLDER == _SHARED_FOLDER


def make_shared_folder(path: Path) -> None:
    """Makes a folder whose group may use it and all that will be made in it. FileExistsError if it is there.

    Missing folders above it are made, too: the group may pass through them, and no more.
    """
    missing = [folder for folder in path.parents if not folder.is_dir()]
    make_folders(path.parent)
    for folder in missing:
        folder.chmod(folder.stat().st_mode | stat.S_IXGRP)
    path.mkdir(0o700)
    path.chmod(_SHARED_FOLDER)
