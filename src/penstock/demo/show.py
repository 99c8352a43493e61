"""What the terminal shows of the demo: a live table, and what happens as it happens."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from rich.box import ROUNDED, SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from penstock.demo.mailbox import Mail

TEXT_LINES_MAX = 12
"""So much of a mail is shown."""
REFRESHES_PER_SECOND = 2


@dataclass(frozen=True)
class ViewSeen:
    """A view, as the stream told of it last."""

    rows: int = 0
    rate: float = 0.0
    behind: int = 0
    late: int = 0
    corrected: int = 0


class Show:
    """Gathers what the site, its stream and its mailbox tell. Any thread may tell."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._views: dict[str, ViewSeen] = {}
        self._steps: list[float] = []
        self.events = 0
        """How many are in the log."""
        self.mails: list[Mail] = []
        self.left: int | None = None
        """How many records the stream had not read after its last step; None before the first."""

    def says(self, line: Mapping[str, Any]) -> None:
        """The stream says something: see `penstock run --json`."""
        if line.get("event") != "step":
            return
        with self._lock:
            for name, view in line["views"].items():
                before = self._views.get(name, ViewSeen())
                self._views[name] = ViewSeen(
                    view["rows"],
                    view["records_per_second"],
                    view["behind"] or 0,
                    before.late + view["late"],
                    before.corrected + view["corrected"],
                )
            self._steps = [*self._steps[-19:], line["seconds"]]
            self.left = line["left"]

    def tell(self, text: str, style: str = "") -> None:
        """Something happened that people should know."""
        self._console.print(f"{time.monotonic() - self._began:5.1f} s  ", Text(text, style), sep="", soft_wrap=True)

    def mailed(self, mail: Mail) -> None:
        """A mail came."""
        self.mails.append(mail)
        lines = mail.text.strip().splitlines()
        if len(lines) > TEXT_LINES_MAX:
            lines = [*lines[:TEXT_LINES_MAX], "..."]
        attached = f"\nattached: {', '.join(mail.attachments)}" if mail.attachments else ""
        body = Text("\n".join(lines) + attached, overflow="ellipsis", no_wrap=True)
        title = Text(f"mail to {mail.to}: {mail.subject}")
        self._console.print(Panel(body, title=title, title_align="left", box=ROUNDED, border_style="red"))

    def line(self) -> None:
        """How far it is, in one line, where the table is not shown."""
        if not self._console.is_terminal:
            views = ", ".join(f"{name} {view.rows:,}" for name, view in self._views.items()) or "none yet"
            self.tell(f"{self.events:,} events, {len(self.mails)} mails; rows of views: {views}")

    def live(self) -> AbstractContextManager[object]:
        """The table, as long as the `with` lasts; nothing where there is no terminal."""
        if not self._console.is_terminal:
            return nullcontext()
        return Live(
            get_renderable=self._table,
            console=self._console,
            refresh_per_second=REFRESHES_PER_SECOND,
            transient=True,
        )

    def _table(self) -> Group:
        with self._lock:
            views, steps = dict(self._views), sorted(self._steps)
        table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for number, name in enumerate(("view", "rows", "records/s", "behind", "late", "corrected")):
            table.add_column(name, justify="left" if number == 0 else "right", no_wrap=True)
        for name, view in views.items():
            numbers = (view.rows, view.rate, view.behind, view.late, view.corrected)
            table.add_row(name, *(f"{each:,.0f}" for each in numbers))
        step = f", a step takes {steps[len(steps) // 2] * 1000:,.0f} ms" if steps else ", Spark is starting"
        return Group(Text(f"{self.events:,} events, {len(self.mails)} mails{step}", "bold"), table)
