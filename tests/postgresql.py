"""A real PostgreSQL in a temporary folder: one that all test processes share, or one of a file's own."""

from __future__ import annotations

import functools
import json
import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
import trustme

from tests.services.process import port_of, reserve_port
from tests.services.shared import shared

DEBIAN = Path("/usr/lib/postgresql")
OLDEST = 15


@dataclass
class Server:
    """A running PostgreSQL, reached over loopback and a socket in its folder. Each test makes its own databases."""

    folder: Path
    port: int

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://penstock@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """Return the address of an empty database."""
        name = f"test_{uuid.uuid4().hex}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} STRATEGY file_copy")
        return self.url(name)


class OwnServer(Server):
    """A server of one test file, which may stop and restart it.

    With a certificate it accepts TLS. With `is_open` it listens on all addresses. Only a durable one syncs.
    """

    def __init__(
        self,
        folder: Path,
        certificate: trustme.LeafCert | None = None,
        *,
        is_open: bool = False,
        is_durable: bool = False,
    ) -> None:
        # Kept while the server is down, so that it gets its port again.
        self._reserved = reserve_port()
        super().__init__(folder, port_of(self._reserved))
        # A server refuses to run as root.
        owner = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
        if owner:
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        self.run(
            "initdb", "-D", str(self.data), "-U", "penstock", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"
        )
        address = "*" if is_open else "127.0.0.1"
        self._configure(f"port={self.port}", f"listen_addresses='{address}'", f"unix_socket_directories='{folder}'")
        self._configure(f"fsync={'on' if is_durable else 'off'}", "max_connections=200")
        if is_open:
            with open(self.data / "pg_hba.conf", "a") as rules:
                rules.write("host all all samehost trust\n")
        if certificate is not None:
            self._write_certificate(certificate)
        self.start()

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def start(self) -> None:
        self.control("-w", "-l", str(self.folder / "server.log"), "start")

    def stop(self, mode: str = "immediate") -> None:
        self.control("-m", mode, "stop")

    def restart(self) -> None:
        """Restart the server as after a crash."""
        self.control("-m", "immediate", "-w", "-l", str(self.folder / "server.log"), "restart")

    def control(self, *arguments: str) -> None:
        self.run("pg_ctl", "-D", str(self.data), *arguments)

    def run(self, program: str, *arguments: str) -> None:
        with open(self.folder / "out.log", "a+") as out:
            done = subprocess.run(
                [str(binaries() / program), *arguments],
                user="postgres" if os.geteuid() == 0 else None,
                cwd=self.folder,
                env={**os.environ, "PGCTLTIMEOUT": "600"},
                # To a file, not a pipe: the server inherits it and would keep a pipe open.
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                check=False,
            )
            out.seek(0)
            assert done.returncode == 0, out.read()[-2000:]

    def _configure(self, *lines: str) -> None:
        with open(self.data / "postgresql.conf", "a") as settings:
            settings.writelines(f"{line}\n" for line in lines)

    def _write_certificate(self, certificate: trustme.LeafCert) -> None:
        key, chain = self.folder / "server.key", self.folder / "server.pem"
        certificate.private_key_pem.write_to_path(key)
        for each in certificate.cert_chain_pems:
            each.write_to_path(chain, append=True)
        key.chmod(0o600)  # Else the server does not take it.
        shutil.chown(key, self.data.owner())
        self._configure("ssl=on", f"ssl_cert_file='{chain}'", f"ssl_key_file='{key}'")


@pytest.fixture(scope="session")
def postgresql(run_folder: Path) -> Iterator[Server]:
    """The PostgreSQL server that all processes of this run share. A test that stops it asks for `own_postgresql`."""
    binaries()

    def start() -> tuple[str, list[str]]:
        server = OwnServer(Path(tempfile.mkdtemp(prefix="penstock-pg-")))
        stop = '"$0" -D "$1/data" -m immediate stop; rm -rf "$1"'
        as_owner = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        return json.dumps([str(server.folder), server.port]), [
            *as_owner,
            "sh",
            "-c",
            stop,
            f"{binaries()}/pg_ctl",
            str(server.folder),
        ]

    with shared(run_folder, "postgresql", start) as description:
        folder, port = json.loads(description)
        yield Server(Path(folder), port)


@pytest.fixture(scope="module")
def own_postgresql() -> Iterator[OwnServer]:
    """A PostgreSQL server of this test file, which may stop it."""
    yield from running()


def running(
    certificate: trustme.LeafCert | None = None, *, is_open: bool = False, is_durable: bool = False
) -> Iterator[OwnServer]:
    """A server in a temporary folder, up to the end of the iteration."""
    binaries()
    with tempfile.TemporaryDirectory(prefix="penstock-pg-") as folder:
        server = OwnServer(Path(folder), certificate, is_open=is_open, is_durable=is_durable)
        try:
            yield server
        finally:
            server.stop()


@functools.cache
def binaries() -> Path:
    """The folder of PostgreSQL's programs; the test is skipped where there is none."""
    versions = sorted((int(each.name) for each in DEBIAN.glob("*") if each.name.isdecimal()), reverse=True)
    places = [DEBIAN / str(version) / "bin" for version in versions if version >= OLDEST]
    if initdb := shutil.which("initdb"):
        places.insert(0, Path(initdb).resolve().parent)
    for place in places:
        if (place / "initdb").is_file():
            return place
    pytest.skip(f"no PostgreSQL {OLDEST} or newer here: apt install postgresql, or put its initdb on the PATH")
