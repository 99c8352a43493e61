"""`python -m penstock.cli`: the command line of this very Python."""

from __future__ import annotations

from penstock.cli import main

main()
