"""Who may ask: known names, own pages, tokens with rights. Nothing secret is told, and content is never markup."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

import httpx
import pytest
import websockets
from websockets.typing import Origin

from penstock.errors import ServeRefused
from penstock.service.tokens import Right, Tokens
from penstock.settings import ViewsSettings
from tests.eventually import LIMIT_SECONDS
from tests.service.site import Site, make_site, web_socket


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def tokens_of(site: Site) -> Tokens:
    return Tokens(site.settings.serve.tokens_path)


@dataclass(frozen=True)
class Closed:
    """A service that is open only to those with a token."""

    client: httpx.Client
    secrets: dict[str, str]
    """By rights, with commas between them."""


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    folder = tmp_path_factory.mktemp("site")
    site = make_site(folder, f"sqlite:{folder}/views.db").limited(allowed_hosts="views.example.org")
    given: list[list[Right]] = [["read"], ["write"], ["read", "write"], ["admin"]]
    secrets = {",".join(rights): tokens_of(site).add("-".join(rights), rights) for rights in given}
    with site.serving() as client:
        yield Closed(client, secrets)


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:1", "127.0.0.1", "[::1]:8750", "LOCALHOST", "views.example.org:8"]
)
def test_known_names_are_answered(closed: Closed, host: str) -> None:
    headers = {**bearer(closed.secrets["read"]), "Host": host}
    assert closed.client.get("/views", headers=headers).status_code == 200


def test_behind_a_proxy_there_must_be_tokens(site: Site) -> None:
    with pytest.raises(ServeRefused, match=r"others could reach it there as views\.example\.org"):
        site.limited(allowed_hosts="views.example.org").serving().__enter__()


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "localhost:x", "evil.example:8750"])
def test_a_name_that_was_pointed_here_is_not_answered(steady_client: httpx.Client, host: str) -> None:
    answer = steady_client.get("/views", headers={"Host": host})
    assert answer.status_code == 421
    assert "allowed_hosts" in answer.json()["error"]["details"][0]


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost.evil.example"])
def test_pages_of_other_origins_can_do_nothing(steady_client: httpx.Client, origin: str) -> None:
    headers = {"Origin": origin}
    assert steady_client.get("/views", headers=headers).status_code == 403
    assert steady_client.post("/topics/loose", json={"n": 1}, headers=headers).status_code == 403
    assert (
        steady_client.options("/views", headers={**headers, "Access-Control-Request-Method": "GET"}).status_code == 403
    )
    with pytest.raises(websockets.InvalidStatus) as caught:
        web_socket(steady_client, "/topics/loose", origin=Origin(origin))
    assert caught.value.response.status_code == 403
    assert not [name for name in steady_client.get("/views").headers if name.startswith("access-control")]


def test_origins_that_are_allowed_can_read_and_post(site: Site) -> None:
    origin = "https://app.example.org"
    with site.limited(cors_origins=origin).serving() as client:
        before = client.options("/topics/loose", headers={
            "Origin": origin, "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type,idempotency-key",
        })  # fmt: skip
        assert (before.status_code, before.headers["access-control-allow-origin"]) == (200, origin)
        answer = client.get("/views", headers={"Origin": origin})
        assert answer.headers["access-control-allow-origin"] == origin
        assert client.get("/views/nope", headers={"Origin": origin}).headers["access-control-allow-origin"] == origin
        assert client.get("/views", headers={"Origin": "https://evil.example"}).status_code == 403


def test_without_tokens_this_machine_needs_none_and_with_one_everybody_does(client: httpx.Client, site: Site) -> None:
    assert client.get("/views").status_code == 200
    secret = tokens_of(site).add("dashboard", ["read"])
    answer = client.get("/views")
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert client.get("/views", headers=bearer(secret)).status_code == 200
    assert [client.get(path).status_code for path in ("/health", "/ready")] == [200, 200]
    tokens_of(site).remove("dashboard")
    assert client.get("/views", headers=bearer(secret)).status_code == 401
    assert client.get("/views").status_code == 401  # Not open again: somebody wanted it shut.


@pytest.mark.parametrize(
    ("rights", "allowed"),
    [
        ("read", {"read"}),
        ("write", {"write"}),
        ("read,write", {"read", "write"}),
        ("admin", {"read", "write", "metrics"}),
    ],
)
def test_a_token_may_do_what_its_rights_say(closed: Closed, rights: str, allowed: set[str]) -> None:
    client, headers = closed.client, bearer(closed.secrets[rights])
    found = {
        "read": [
            client.get(path, headers=headers).status_code
            for path in ("/views", "/views/sales", "/topics", "/topics/access", "/views/sales/changes", "/docs",
                         "/openapi.json")
        ],
        "write": [client.post("/topics/loose", json={"n": 1}, headers=headers).status_code],
        "metrics": [client.get("/metrics", headers=headers).status_code],
    }  # fmt: skip
    for what, statuses in found.items():
        assert set(statuses) == {200 if what in allowed else 403}, what


@pytest.mark.parametrize("given", ["", "Bearer", "Bearer wrong", "Basic {}", "{}", "Bearer {}x", "Bearer \xe9"])
def test_without_a_valid_token_nothing_is_answered(closed: Closed, given: str) -> None:
    secret = closed.secrets["admin"]
    header = {b"Authorization": given.format(secret).encode("latin-1")}
    answer = closed.client.get("/views", headers=header)
    assert answer.status_code == 401
    assert secret not in answer.text


def test_a_web_socket_needs_a_token(closed: Closed) -> None:
    with pytest.raises(websockets.InvalidStatus) as caught:
        web_socket(closed.client, "/topics/loose")
    assert caught.value.response.status_code == 401
    with web_socket(closed.client, "/topics/access", additional_headers=bearer(closed.secrets["read"])) as socket:
        assert "/0" in str(socket.recv(LIMIT_SECONDS))


def test_a_file_of_tokens_that_others_may_read_shuts_everybody_out(client: httpx.Client, site: Site) -> None:
    secret = tokens_of(site).add("one", ["read"])
    assert client.get("/views", headers=bearer(secret)).status_code == 200
    site.settings.serve.tokens_path.chmod(0o644)
    site.settings.serve.tokens_path.touch()
    answer = client.get("/views", headers=bearer(secret))
    assert answer.status_code == 503
    assert str(site.folder) not in answer.text


def test_all_bodies_together_are_bounded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.service.guard.BODIES_MAX", 0)
    with site.serving() as client:
        assert client.post("/topics/loose", json={"n": 1}).status_code == 503


def test_nothing_secret_is_logged(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("uvicorn").setLevel(logging.DEBUG)
    secret = tokens_of(site).add("one", ["read"])
    with site.serving(Authorization=f"Bearer {secret}") as client:
        client.get("/views/sales", params={"where": "url=hush-hush"})
        client.post("/topics/access", json={"url": "hush-hush"})
        client.get("/views", headers=bearer("hush-hush"))
        with pytest.raises(websockets.InvalidStatus):
            web_socket(client, "/nope?where=hush-hush")
    ours = "\n".join(each.getMessage() for each in caplog.records if each.name.split(".")[0] in ("penstock", "uvicorn"))
    assert secret not in ours
    assert "hush-hush" not in ours


@pytest.mark.parametrize("path", ["/views", "/views/sales?format=csv", "/topics/access", "/nope", "/docs", "/metrics"])
def test_no_answer_can_be_taken_for_a_page_with_scripts(steady_client: httpx.Client, path: str) -> None:
    steady_client.post("/topics/access", json={"url": "<script>alert(1)</script>"})
    answer = steady_client.get(path)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-type"].startswith("text/html") == (path == "/docs")
    assert "server" not in answer.headers


def test_a_failure_of_ours_is_told_without_a_traceback(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from penstock.log.folder_log import FolderLog

    monkeypatch.setattr(FolderLog, "topics", lambda *given, **named: 1 / 0)
    answer = client.get("/topics")
    assert answer.status_code == 500
    assert answer.json()["error"]["kind"] == "Failure"
    assert "ZeroDivision" not in answer.text
    assert "ZeroDivisionError" in caplog.text


def test_a_database_that_is_away_is_no_failure_of_the_service(site: Site) -> None:
    away = replace(site.settings, views=ViewsSettings(url="postgresql://user:hush-hush@127.0.0.1:1/views"))
    with replace(site, settings=away).serving() as client:
        answer = client.get("/views")
        assert (answer.status_code, answer.json()["error"]["is_retryable"]) == (503, True)
        assert "127.0.0.1" not in answer.text
        assert client.get("/ready").status_code == 503
        assert client.get("/health").status_code == 200
        assert client.get("/topics").status_code == 200


def test_wrong_methods_and_paths_are_told_in_words(steady_client: httpx.Client) -> None:
    answer = steady_client.put("/topics/loose", json={})
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, POST")
    assert steady_client.get("/nope").json()["error"]["details"] == ["what can be asked for: /docs or /openapi.json"]


def test_a_file_of_tokens_without_any_opens_the_door_to_nobody(site: Site) -> None:
    tokens_of(site).add("ada", ["read"])
    tokens_of(site).remove("ada")
    with site.serving() as client:  # Another service than the one that has seen the token.
        assert client.get("/views").status_code == 401
