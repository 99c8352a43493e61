"""`python -m penstock.demo`: see `penstock demo --help`."""

from __future__ import annotations

import sys

from penstock.cli import app

if __name__ == "__main__":
    app(["demo", *sys.argv[1:]], prog_name="penstock")
