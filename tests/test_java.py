"""Without a Java that is new enough nothing starts, and one sentence says what to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import JavaMissing
from penstock.java import require_java


def fake_java(folder: Path, says: str) -> dict[str, str]:
    """An environment whose only java says that of itself."""
    (folder / "bin").mkdir()
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    return {"PATH": str(folder / "bin")}


@pytest.mark.parametrize(
    "says", ['openjdk version "17.0.15" 2025-04-15', 'java version "21"', 'openjdk version "25-ea"']
)
def test_new_enough_java_is_taken(tmp_path: Path, says: str) -> None:
    assert require_java(fake_java(tmp_path, says)) == tmp_path / "bin" / "java"


@pytest.mark.parametrize(
    ("says", "found"),
    [
        ('openjdk version "11.0.22" 2024-01-16', "is Java 11"),
        ('java version "1.8.0_392"', "is Java 8"),
        ("no runtime present", "has a version nobody can read"),
    ],
)
def test_old_or_broken_java_is_named_in_one_sentence(tmp_path: Path, says: str, found: str) -> None:
    with pytest.raises(JavaMissing) as caught:
        require_java(fake_java(tmp_path, says))
    assert caught.value.found == f"{tmp_path}/bin/java {found}"
    assert "Spark needs Java 17 or newer" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    environment = fake_java(tmp_path, 'openjdk version "17.0.1"')
    with pytest.raises(JavaMissing, match="JAVA_HOME=/nowhere holds no bin/java"):
        require_java({**environment, "JAVA_HOME": "/nowhere"})
    assert require_java({"PATH": "/nowhere", "JAVA_HOME": str(tmp_path)}) == tmp_path / "bin" / "java"


def test_command_prints_the_sentence_and_fails_without_java() -> None:
    command = [sys.executable, "-m", "penstock.java"]
    answer = subprocess.run(command, env={"PATH": "/nowhere"}, capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert answer.stderr.startswith(
        "Spark needs Java 17 or newer, and no java was found on PATH or in JAVA_HOME: install"
    )
    assert len(answer.stderr.splitlines()) == 1
