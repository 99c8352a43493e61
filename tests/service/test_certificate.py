"""The service over TLS."""

from __future__ import annotations

import logging
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trustme
from websockets.sync.client import connect

from penstock.errors import ServeRefused
from penstock.service import certificate
from penstock.service.certificate import Certificate
from penstock.service.server import serving
from tests.eventually import LIMIT_SECONDS, eventually
from tests.service.site import Site


class Authority:
    """Issues certificates into two files."""

    def __init__(self, folder: Path) -> None:
        self._ca = trustme.CA()
        self.certificate, self.key = folder / "tls.crt", folder / "tls.key"
        self.context = ssl.create_default_context()
        self._ca.configure_trust(self.context)
        self.issue()

    def issue(self) -> None:
        issued = self._ca.issue_cert("127.0.0.1", "localhost")
        for path, content in (
            (self.certificate, b"".join(each.bytes() for each in issued.cert_chain_pems)),
            (self.key, issued.private_key_pem.bytes()),
        ):
            unfinished = path.with_suffix(".new")
            unfinished.write_bytes(content)
            unfinished.replace(path)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def url(site: Site, authority: Authority) -> Iterator[str]:
    settings = site.limited(certificate=str(authority.certificate), key=str(authority.key)).settings
    with serving(settings) as found:
        yield found


def serial(url: str, context: ssl.SSLContext) -> object:
    """What tells the certificate that is used now from others."""
    address = httpx.URL(url)
    with (
        socket.create_connection((address.host, address.port or 0), LIMIT_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=address.host) as connection,
    ):
        found = connection.getpeercert()
        assert found is not None
        return found["serialNumber"]


def test_requests_answers_and_streams_go_over_tls(url: str, authority: Authority) -> None:
    assert url.startswith("https://")
    with httpx.Client(base_url=url, verify=authority.context, timeout=LIMIT_SECONDS) as client:
        assert client.get("/health").status_code == 200
        large = "x" * 3_000_000
        assert client.post("/topics/access", json={"url": large}).status_code == 200
        # Many times what fits into the buffers of the connection.
        assert client.get("/topics/access").json()["records"][-1]["event"]["url"] == large
    address = url.replace("https", "wss") + "/topics/access"
    with connect(address, ssl=authority.context, max_size=None) as stream:
        while large not in str(stream.recv(LIMIT_SECONDS)):
            continue


def test_plain_http_is_not_answered(url: str) -> None:
    with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
        httpx.get(url.replace("https", "http") + "/health")


def test_a_renewed_certificate_is_used_without_a_restart(
    site: Site, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificate, "LOOK_SECONDS", 0.05)
    settings = site.limited(certificate=str(authority.certificate), key=str(authority.key)).settings
    with serving(settings) as url:
        before = serial(url, authority.context)
        authority.issue()
        eventually(lambda: serial(url, authority.context) != before)


def test_half_a_renewal_leaves_the_old_certificate_in_use(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    found = Certificate(authority.certificate, authority.key)
    old_key = authority.key.read_bytes()
    authority.issue()
    new_key = authority.key.read_bytes()
    authority.key.write_bytes(old_key)
    with caplog.at_level(logging.WARNING):
        assert not found.renew()
    assert "the certificate stays as it is" in caplog.text
    os.utime(authority.key, (0, 0))
    authority.key.write_bytes(new_key)
    assert found.renew()
    assert not found.renew()


def test_a_handshake_that_is_never_completed_is_cut_off(
    site: Site, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.service.server.HANDSHAKE_SECONDS", 0.2)
    settings = site.limited(certificate=str(authority.certificate), key=str(authority.key)).settings
    with serving(settings) as url:
        address = httpx.URL(url)
        with socket.create_connection((address.host, address.port or 0), LIMIT_SECONDS) as silent:
            assert silent.recv(1) == b""


@pytest.mark.parametrize(
    ("certificate", "key", "words"),
    [
        ("tls.crt", "", "serve.key is not set"),
        ("", "tls.key", "serve.certificate is not set"),
        ("nowhere.crt", "tls.key", "nowhere.crt cannot be read: No such file or directory"),
        ("tls.key", "tls.crt", "are no certificate and its key"),
    ],
)
def test_what_is_no_certificate_is_refused_before_anything_listens(
    site: Site, authority: Authority, certificate: str, key: str, words: str
) -> None:
    folder = authority.certificate.parent
    given = {name: str(folder / value) if value else "" for name, value in (("certificate", certificate), ("key", key))}
    with pytest.raises(ServeRefused, match=words), serving(site.limited(**given).settings):
        pass
