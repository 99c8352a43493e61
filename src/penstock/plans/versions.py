"""The versions of the libraries that a user's code calls."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Mapping
from functools import lru_cache


def version_of(top: str) -> str:
    """The version of the library that a package or module of that name belongs to."""
    try:
        return importlib.metadata.version(top)
    except importlib.metadata.PackageNotFoundError:
        pass
    distributions = _packages().get(top)
    if distributions:
        return importlib.metadata.version(sorted(distributions)[0])
    return str(getattr(sys.modules.get(top), "__version__", "of an unknown version"))


@lru_cache(maxsize=1)
def _packages() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()
