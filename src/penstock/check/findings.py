"""What a check of the log found: damage, and things worth a note."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Severity = Literal["damage", "note"]
Subject = Literal["definition", "manifest", "sealed", "hot", "keys", "end", "leftover", "folder"]


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be."""

    place: str
    """The partition, such as 'orders/3', or the topic."""
    path: Path
    severity: Severity
    """Damage is what somebody must look at; a note explains itself, and the log goes on."""
    subject: Subject
    """What it is about."""
    found: str
    advice: str
    """What to do next."""
    offset: int | None = None
    """The first offset that is not as it should be."""
    position: int | None = None
    """The byte of the file where it begins."""

    @property
    def is_damage(self) -> bool:
        return self.severity == "damage"

    def text(self) -> str:
        """The finding for people, on three lines."""
        where = "".join(
            f", {name} {value}"
            for name, value in (("offset", self.offset), ("byte", self.position))
            if value is not None
        )
        return f"{self.severity}: {self.place}{where}: {self.found}\n  file: {self.path}\n  {self.advice}"


@dataclass(frozen=True)
class PartitionReport:
    """A partition as it is on disk, and what was found wrong with it."""

    place: str
    directory: Path
    start: int
    end: int
    """The offset of the next record, as far as the files can be trusted."""
    records: int
    bytes: int
    sealed: int
    """How many sealed segments it has."""
    hot: int
    """How many hot segments it has."""
    findings: tuple[Finding, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether nothing is damaged."""
        return not any(finding.is_damage for finding in self.findings)
