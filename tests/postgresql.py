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
import trustme

BINARIES = ("/usr/lib/postgresql/15/bin", "/usr/lib/postgresql/16/bin", "/usr/lib/postgresql/17/bin")


class Server:
    """A PostgreSQL in a temporary folder, reached over loopback and over a socket in that folder.

    With a certificate it speaks TLS with whoever wants to. With `is_open` it listens on all addresses. Only a durable
    one waits for its disk.
    """

    def __init__(
        self,
        binaries: Path,
        folder: Path,
        certificate: trustme.LeafCert | None = None,
        *,
        is_open: bool = False,
        is_durable: bool = False,
    ) -> None:
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
        address, fsync = "*" if is_open else "127.0.0.1", "on" if is_durable else "off"
        self._options = f"-p {self.port} -k {folder} -c listen_addresses={address} -c fsync={fsync}"
        self.run("initdb", "-D", str(folder / "data"), "-U", "penstock", "-A", "trust", "-E", "UTF8", "--locale=C")
        if is_open:
            with open(folder / "data" / "pg_hba.conf", "a") as rules:
                rules.write("host all all samehost trust\n")
        if certificate is not None:
            self._write_certificate(certificate)
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
        self.control("-w", "-l", str(self.folder / "server.log"), "-o", self._options, "start")

    def stop(self, mode: str = "immediate") -> None:
        self.control("-m", mode, "stop")

    def _write_certificate(self, certificate: trustme.LeafCert) -> None:
        key, chain = self.folder / "server.key", self.folder / "server.pem"
        certificate.private_key_pem.write_to_path(key)
        for each in certificate.cert_chain_pems:
            each.write_to_path(chain, append=True)
        key.chmod(0o600)  # Else the server does not take it.
        if self._user:
            shutil.chown(key, self._user)
        self._options += f" -c ssl=on -c ssl_cert_file={chain} -c ssl_key_file={key}"

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
    yield from running()


def running(
    certificate: trustme.LeafCert | None = None, *, is_open: bool = False, is_durable: bool = False
) -> Iterator[Server]:
    """A server in a temporary folder, up to the end of the iteration."""
    binaries = _binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL 15 or newer here: apt install postgresql, or put pg_config on the PATH")
    with tempfile.TemporaryDirectory(prefix="penstock-pg-") as folder:
        server = Server(binaries, Path(folder), certificate, is_open=is_open, is_durable=is_durable)
        try:
            yield server
        finally:
            server.stop()


def _binaries() -> Path | None:
    places = [Path(each) for each in BINARIES]
    if config := shutil.which("pg_config"):
        found = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=False).stdout.strip()
        places.insert(0, Path(found))
    return next((place for place in places if (place / "initdb").is_file()), None)
