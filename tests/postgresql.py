"""A real PostgreSQL for the tests of this process, in a temporary folder, with as many databases as are asked for."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

BINARIES = ("/usr/lib/postgresql/15/bin", "/usr/lib/postgresql/16/bin", "/usr/lib/postgresql/17/bin")


class Server:
    """A PostgreSQL in a temporary folder, reached over loopback and over a socket in that folder."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self.folder = folder
        self._binaries = binaries
        self._databases = 0
        # A server refuses to run as root.
        self._user = "postgres" if os.geteuid() == 0 else None
        if self._user:
            owner = pwd.getpwnam(self._user)
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.run("initdb", "-D", str(folder / "data"), "-U", "penstock", "-A", "trust", "-E", "UTF8", "--locale=C")
        self.start()

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://penstock@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The address of an empty database."""
        self._databases += 1
        name = f"test_{self._databases}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} STRATEGY file_copy")
        return self.url(name)

    def start(self) -> None:
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        self.control("-w", "-l", str(self.folder / "server.log"), "-o", options, "start")

    def stop(self, mode: str = "immediate") -> None:
        self.control("-m", mode, "stop")

    def control(self, *arguments: str) -> None:
        self.run("pg_ctl", "-D", str(self.folder / "data"), *arguments)

    def run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._binaries / program), *arguments],
            user=self._user,
            cwd=self.folder,
            # To files, not pipes: the server inherits them and would keep a pipe open.
            stdin=subprocess.DEVNULL,
            stdout=(out := open(self.folder / "out.log", "a")),  # noqa: SIM115
            stderr=subprocess.STDOUT,
            check=False,
        )
        out.close()
        assert done.returncode == 0, (self.folder / "out.log").read_text()[-2000:]


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """A PostgreSQL server; the test is skipped where it is not installed, and carries the mark `services`."""
    binaries = _binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL 15 or newer here: apt install postgresql, or put pg_config on the PATH")
    with tempfile.TemporaryDirectory(prefix="penstock-pg-") as folder:
        server = Server(binaries, Path(folder))
        yield server
        server.stop()


def _binaries() -> Path | None:
    places = [Path(each) for each in BINARIES]
    if config := shutil.which("pg_config"):
        found = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=False).stdout.strip()
        places.insert(0, Path(found))
    return next((place for place in places if (place / "initdb").is_file()), None)
