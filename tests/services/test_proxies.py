"""The configurations of nginx and Caddy in the documentation pass on all that the service does, over TLS."""

from __future__ import annotations

import os
import shutil
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from socket import create_connection

import httpx
import pytest
import trustme
from websockets.sync.client import connect

from penstock.service.tokens import Tokens
from tests.conftest import ROOT
from tests.docs.documentation import blocks_of
from tests.eventually import LIMIT_SECONDS, eventually
from tests.service.site import make_site
from tests.services.process import Service, port_of, reserve_port

pytestmark = pytest.mark.services
NAME = "views.example.org"
FOLLOWED = "/topics/access?from=0%3D10"
BLOCKS = {block.file: block.code for block in blocks_of(ROOT / "docs" / "service.md") if block.file}


def nginx(folder: Path, written: str) -> list[str]:
    (folder / "site.conf").write_text(written)
    places = "".join(
        f"    {each}_temp_path {folder}/{each};\n" for each in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"pid {folder}/pid;\nerror_log stderr;\ndaemon off;\nuser {os.environ.get('USER', 'root')};\n"
        f"events {{}}\nhttp {{\n    access_log off;\n{places}    include {folder}/site.conf;\n}}\n"
    )
    return ["nginx", "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf")]


def caddy(folder: Path, written: str) -> list[str]:
    (folder / "Caddyfile").write_text(f"{{\n    admin off\n    auto_https disable_redirects\n}}\n{written}")
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]


@pytest.fixture(params=["nginx", "caddy"])
def proxied(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[httpx.Client, ssl.SSLContext]]:
    """A service behind the proxy, and a client that knows it by its name alone."""
    kind: str = request.param
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
    if shutil.which(kind, path=path) is None:
        pytest.skip(f"{kind} is not installed: apt install {kind}")
    authority = trustme.CA()
    certificate = authority.issue_cert(NAME)
    certificate.private_key_pem.write_to_path(tmp_path / "views.key")
    for each in certificate.cert_chain_pems:
        each.write_to_path(tmp_path / "views.crt", append=True)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    site = make_site(tmp_path, f"sqlite:{tmp_path}/views.db").limited(allowed_hosts=NAME, trusted_proxies="127.0.0.1")
    token = Tokens(site.settings.serve.tokens_path).add("client", ["read", "write"])
    reserved = reserve_port()
    port = port_of(reserved)
    with site.serving() as direct:
        written = BLOCKS["penstock-nginx.conf" if kind == "nginx" else "Caddyfile"]
        changes = {"127.0.0.1:8750": f"127.0.0.1:{direct.base_url.port}", "/etc/ssl": str(tmp_path)}
        changes |= (
            {"listen 443": f"listen 127.0.0.1:{port}"} if kind == "nginx" else {f"{NAME} {{": f"{NAME}:{port} {{"}
        )
        for before, after in changes.items():
            assert before in written
            written = written.replace(before, after)
        command: Callable[[Path, str], list[str]] = {"nginx": nginx, "caddy": caddy}[kind]
        reserved.close()
        environment = {
            "PATH": path,
            "HOME": str(tmp_path),
            "XDG_DATA_HOME": str(tmp_path),
            "XDG_CONFIG_HOME": str(tmp_path),
        }
        proxy = Service(kind, command(tmp_path, written), tmp_path / "proxy.log", environment)
        headers = {"host": f"{NAME}:{port}", "authorization": f"Bearer {token}"}
        url = f"https://127.0.0.1:{port}"
        try:
            with httpx.Client(base_url=url, verify=context, headers=headers, timeout=LIMIT_SECONDS) as client:
                client.event_hooks["request"] = [named]
                eventually(lambda: is_up(client, proxy), explain=proxy.said)
                yield client, context
        finally:
            proxy.kill()


def named(request: httpx.Request) -> None:
    """As if the name led here: TLS asks for it and checks it."""
    request.extensions["sni_hostname"] = NAME


def is_up(client: httpx.Client, proxy: Service) -> bool:
    assert proxy.is_running, proxy.said()
    try:
        return client.get("/health").status_code == 200
    except httpx.TransportError:
        return False


def test_proxy_passes_on_rows_events_streams_and_sockets(
    proxied: tuple[httpx.Client, ssl.SSLContext],
) -> None:
    client, context = proxied
    rows = client.get("/views/sales", params={"key": ["2026-01-01T12:01:00Z", "/1"]}).json()
    assert [row["hits"] for row in rows["rows"]] == [9]
    assert client.get("/views/sales", headers={"authorization": "Bearer wrong"}).status_code == 401

    many = b'{"n": 1}\n' * 400_000  # 3.6 MB, above what a proxy keeps in memory, or takes by default.
    stored = client.post("/topics/loose", content=many, headers={"content-type": "application/x-ndjson"})
    assert stored.json()["stored"] == 400_000

    accept = {"accept": "text/event-stream", "last-event-id": "0=10"}
    port = client.base_url.port or 0
    token = {"Authorization": client.headers["authorization"]}
    with (
        client.stream("GET", "/topics/access", headers=accept) as stream,
        create_connection(("127.0.0.1", port)) as wire,
        connect(f"wss://{NAME}:{port}{FOLLOWED}", sock=wire, ssl=context, additional_headers=token) as socket,
    ):
        lines = stream.iter_lines()
        assert next(lines).startswith(":")
        # Sent while both are open: neither is held back until there is more.
        answer = client.post("/topics/access", json={"time": "2026-01-01T13:00:00Z", "url": "/late"})
        assert answer.json()["stored"] == 1
        assert "/late" in next(line for line in lines if line.startswith("data: "))
        assert "/late" in str(socket.recv(timeout=LIMIT_SECONDS))
