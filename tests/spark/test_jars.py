"""The connector's jars: fetched once, checked, and never left half."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from penstock.errors import ChecksumWrong, DownloadFailed
from penstock.spark import jars
from penstock.spark.jars import Jar, connector_in, fetch, jars_folder
from tests.cli.commands import fails, run


class Repository:
    """A repository of Maven's kind on loopback, with jars that are small."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []
        self.url = ""
        contents = {"one": b"1" * 5000, "two": b"2" * 7000}
        self.jars = tuple(
            Jar("org.example", name, "1.0", hashlib.sha256(content).hexdigest()) for name, content in contents.items()
        )
        for jar, content in zip(self.jars, contents.values(), strict=True):
            self.put(jar, content)

    def put(self, jar: Jar, content: bytes) -> None:
        place = self.folder / jar.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    found = Repository(tmp_path / "repository")

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            found.asked.append(self.path.rpartition("/")[2])

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(found.folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found.url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(jars, "CONNECTOR", found.jars)
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield found
    server.shutdown()
    server.server_close()


def test_jars_are_fetched_once(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_MAVEN_URL", repository.url + "/")
    folder = jars_folder()
    assert connector_in(folder) == []
    assert run("jars").splitlines() == [
        "fetched: one-1.0.jar",
        "fetched: two-1.0.jar",
        f"in {folder}: penstock run --trigger realtime finds them there",
    ]
    assert [each.read_bytes()[:1] for each in connector_in(folder)] == [b"1", b"2"]
    assert json.loads(run("jars", "--json"))["jars"] == {"one-1.0.jar": False, "two-1.0.jar": False}
    assert repository.asked == ["one-1.0.jar", "two-1.0.jar"]


def test_another_folder_is_told_with_the_setting_that_names_it(repository: Repository, tmp_path: Path) -> None:
    said = run("jars", "--to", str(tmp_path / "mine"), "--from", repository.url)
    assert said.endswith(f'"spark.jars" = "{tmp_path}/mine/one-1.0.jar,{tmp_path}/mine/two-1.0.jar"\n')


def test_what_is_missing_or_damaged_is_fetched_and_the_rest_stays(repository: Repository, tmp_path: Path) -> None:
    fetch(tmp_path / "jars", repository.url)
    (tmp_path / "jars" / "two-1.0.jar").write_bytes(b"2" * 100)
    repository.asked.clear()
    fetch(tmp_path / "jars", repository.url)
    assert repository.asked == ["two-1.0.jar"]
    assert (tmp_path / "jars" / "two-1.0.jar").stat().st_size == 7000


def test_a_wrong_checksum_leaves_nothing(repository: Repository, tmp_path: Path) -> None:
    repository.put(repository.jars[1], b"something else")
    with pytest.raises(ChecksumWrong) as wrong:
        fetch(tmp_path / "jars", repository.url)
    assert wrong.value.expected == repository.jars[1].sha256
    assert wrong.value.found == hashlib.sha256(b"something else").hexdigest()
    assert [each.name for each in (tmp_path / "jars").iterdir()] == ["one-1.0.jar"]


def test_a_jar_that_cannot_be_fetched_is_named(repository: Repository, tmp_path: Path) -> None:
    (repository.folder / repository.jars[1].path).unlink()
    with pytest.raises(DownloadFailed, match=r"two-1.0.jar could not be fetched\n  the server says 404") as failed:
        fetch(tmp_path / "jars", repository.url)
    assert failed.value.is_retryable
    assert [each.name for each in (tmp_path / "jars").iterdir()] == ["one-1.0.jar"]
    said = fails("jars", "--to", str(tmp_path / "other"), "--from", "http://127.0.0.1:1")
    assert "Connection refused" in said
    assert "PENSTOCK_MAVEN_URL" in said


def test_an_answer_that_was_cut_off_is_noticed(repository: Repository, tmp_path: Path) -> None:
    class Short(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "5000")
            self.end_headers()
            self.wfile.write(b"1" * 10)

        def log_message(self, *_: object) -> None:
            pass

    assert repository.jars
    with ThreadingHTTPServer(("127.0.0.1", 0), Short) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(DownloadFailed, match="only 10 of 5000 bytes came"):
            fetch(tmp_path / "jars", f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert [*(tmp_path / "jars").iterdir()] == []


def test_maven_is_asked_where_the_download_fails(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "mvn"
    program.write_text(
        '#!/bin/sh\nfor word in "$@"; do case $word in -DoutputDirectory=*) to=${word#*=};; '
        "-Dartifact=*) name=$(echo $word | cut -d: -f2);; esac; done\n"
        f'cp "{repository.folder}/org/example/$name/1.0/$name-1.0.jar" "$to/"\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda _: str(program))
    assert all(each.is_file() for each in fetch(tmp_path / "jars", "http://127.0.0.1:1"))
