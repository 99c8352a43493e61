"""The jars of Spark's Kafka connector, which are not part of PySpark: fetched once, checked, and found again.

The versions work together with Spark 4.3.0. Each file is renamed into its place when its checksum is right, so whatever
has its name in the folder is whole; a run that was cut off is repeated for what is missing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from penstock.access import make_file, make_folders
from penstock.errors import ChecksumWrong, DownloadFailed

MAVEN_CENTRAL = "https://repo1.maven.org/maven2"
MIRROR_VARIABLE = "PENSTOCK_MAVEN_URL"
ANSWER_SECONDS = 60.0
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class Jar:
    """One file of Maven Central."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def path(self) -> str:
        """Where it is in every repository of Maven's kind."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.name}"


CONNECTOR = (
    Jar(
        "org.apache.spark",
        "spark-sql-kafka-0-10_2.13",
        "4.2.0",
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
    ),
    Jar(
        "org.apache.spark",
        "spark-token-provider-kafka-0-10_2.13",
        "4.0.0",
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-clients",
        "3.9.1",
        "7568b998572d256f0b7bc0afdc1b7a2588b8b08415c62ce314c864a6851ae9d9",
    ),
    Jar(
        "org.apache.commons",
        "commons-pool2",
        "2.12.0",
        "6d3bd18df8410f3e31b031aca582cc109342358a62a2759ebd0c4cdf30d06f8b",
    ),
)
OnJar = Callable[[Jar, bool], None]
"""Is told of a jar that is in its place, and whether it was fetched just now."""


def jars_folder() -> Path:
    """Where `penstock jars` puts them, and runs look for them: in the cache of the user."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "penstock" / "jars"


def connector_in(folder: Path) -> list[Path]:
    """The jars in a folder; empty if one of them is missing."""
    found = [folder / each.name for each in CONNECTOR]
    return found if all(each.is_file() for each in found) else []


def fetch(folder: Path, url: str | None = None, on_jar: OnJar | None = None) -> list[Path]:
    """Fills a folder with the connector's jars; what is there and right stays. DownloadFailed, ChecksumWrong.

    `url` is a repository of Maven's kind: by default what PENSTOCK_MAVEN_URL names, else Maven Central. Where that
    cannot be reached, `mvn` is asked, if it is installed: it may know a way.
    """
    base = url or os.environ.get(MIRROR_VARIABLE) or MAVEN_CENTRAL
    make_folders(folder)
    for jar in CONNECTOR:
        place = folder / jar.name
        is_new = not place.is_file() or _sha256(place) != jar.sha256
        if is_new:
            _fetch(jar, place, base.rstrip("/"))
        if on_jar is not None:
            on_jar(jar, is_new)
    return [folder / each.name for each in CONNECTOR]


def _fetch(jar: Jar, place: Path, base: str) -> None:
    url = f"{base}/{jar.path}"
    with tempfile.TemporaryDirectory(prefix=".jars-", dir=place.parent) as folder:
        partial = Path(folder) / jar.name
        make_file(partial)
        try:
            _download(url, partial)
        except DownloadFailed:
            if not _ask_maven(jar, partial):
                raise
        found = _sha256(partial)
        if found != jar.sha256:
            raise ChecksumWrong(url, jar.sha256, found)
        partial.replace(place)


def _download(url: str, place: Path) -> None:
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as answer, open(place, "wb") as file:
            shutil.copyfileobj(answer, file, _PIECE_BYTES)
            expected = answer.headers.get("Content-Length")
    except (OSError, HTTPException, ValueError) as error:
        reason = f"the server says {error.code} {error.reason}" if isinstance(error, urllib.error.HTTPError) else error
        raise DownloadFailed(url, str(reason)) from error
    if expected is not None and int(expected) != place.stat().st_size:
        raise DownloadFailed(url, f"only {place.stat().st_size} of {expected} bytes came")


def _ask_maven(jar: Jar, place: Path) -> bool:
    """Whether Maven, which may have a mirror of its own, could bring the jar."""
    maven = shutil.which("mvn")
    if maven is None:
        return False
    named = f"-Dartifact={jar.group}:{jar.artifact}:{jar.version}"
    command = [maven, "--quiet", "--batch-mode", "dependency:copy", named, f"-DoutputDirectory={place.parent}"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, cwd=place.parent)
    return done.returncode == 0 and place.is_file()


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
