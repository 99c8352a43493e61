"""TLS: the certificate of the service, read again when it was renewed."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

from penstock.settings import ServeSettings

LOOK_SECONDS = 10.0
"""So often the files are looked at."""
HANDSHAKE_SECONDS = 10.0
"""A client that has not completed its handshake after this time loses its connection."""
SHUTDOWN_SECONDS = 5.0
"""And one that does not answer the end of its connection, after this one."""

_log = logging.getLogger("penstock.service")


class Certificate:
    """A certificate and its key, in PEM. ValueError says what is wrong with them."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = certificate, key
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._seen = self._versions()
        self._load()

    @classmethod
    def of(cls, settings: ServeSettings) -> Certificate | None:
        """That of the settings; None where there is none, and the service speaks plain HTTP."""
        if not settings.certificate and not settings.key:
            return None
        for name, value in (("certificate", settings.certificate), ("key", settings.key)):
            if not value:
                raise ValueError(f"serve.{name} is not set, and a certificate is of no use without its key")
        return cls(Path(settings.certificate), Path(settings.key))

    def renew(self) -> bool:
        """Reads the files again if they have changed. New connections get the new certificate; True if there is one."""
        try:
            seen = self._versions()
            if seen == self._seen:
                return False
            self._seen = seen
            self._load()
        except ValueError as error:
            _log.warning("serve: the certificate stays as it is: %s", error)
            return False
        return True

    async def follow(self) -> None:
        """Renews it for as long as the service runs."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.renew()

    def _load(self) -> None:
        """Tried out first: half a renewal, a new certificate with the old key, must not get into use."""
        certificate, key = self._files
        for context in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self.context):
            try:
                context.load_cert_chain(certificate, key, password=_refuse_password)
            except (OSError, ssl.SSLError) as error:
                raise ValueError(f"{certificate} and {key} are no certificate and its key: {error}") from error

    def _versions(self) -> list[tuple[int, int, int]]:
        try:
            found = [path.stat() for path in self._files]
        except OSError as error:
            raise ValueError(f"{error.filename} cannot be read: {error.strerror}") from error
        return [(each.st_ino, each.st_mtime_ns, each.st_size) for each in found]


def _refuse_password() -> str:
    """Called by OpenSSL, which would ask the terminal."""
    raise ValueError("the key of the certificate is encrypted: store it without a password, readable by nobody else")
