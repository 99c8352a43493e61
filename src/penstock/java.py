"""Is there a Java that Spark can run on? `python -m penstock.java` answers for scripts, with one sentence on failure.

Needs nothing but the standard library, so that it can be asked before anything is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import JavaMissing

JAVA_VERSION_MIN = 17


def require_java(environment: Mapping[str, str] | None = None) -> Path:
    """The `java` that Spark will start, in the order in which Spark looks: JAVA_HOME, then PATH.

    Raises JavaMissing where there is none, or none new enough. Costs one start of `java -version`, about 0.1 s.
    """
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME")
    named = str(Path(home) / "bin" / "java") if home else "java"
    java = shutil.which(named, path=environment.get("PATH", os.defpath))
    if java is None:
        raise JavaMissing(f"JAVA_HOME={home} holds no bin/java" if home else None, needed=JAVA_VERSION_MIN)
    version = _version_of(java)
    if version is None or version < JAVA_VERSION_MIN:
        found = "has a version nobody can read" if version is None else f"is Java {version}"
        raise JavaMissing(f"{java} {found}", needed=JAVA_VERSION_MIN)
    return Path(java)


def _version_of(java: str) -> int | None:
    """The feature version: 17 for "17.0.15", 8 for "1.8.0_392", None where `java -version` does not say."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match[1]) if match else None


def main() -> int:
    """0 if Spark can run here; else 1, with one sentence that says what to install."""
    try:
        require_java()
    except JavaMissing as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
