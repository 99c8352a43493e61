"""What the terminal shows of the demo."""

from __future__ import annotations

import io

from rich.console import Console

from penstock.demo.mailbox import Mail
from penstock.demo.show import Show


def step(**view: float | None) -> dict[str, object]:
    """What `penstock run --json` says of a step."""
    told = {"rows": 7, "records_per_second": 30.2, "behind": None, "late": 0, "corrected": 0, **view}
    return {"event": "step", "seconds": 0.05, "left": 3, "views": {"traffic": told}}


def shown(is_terminal: bool) -> tuple[Show, io.StringIO]:
    out = io.StringIO()
    return Show(Console(file=out, force_terminal=is_terminal, width=100)), out


def test_the_table_adds_up_what_steps_tell() -> None:
    show, out = shown(is_terminal=True)
    with show.live():
        show.says(step(late=90, corrected=50))
        show.says(step(rows=1234, late=1, corrected=2))
        show.says({"event": "end"})
    line = next(line for line in out.getvalue().splitlines() if "traffic" in line and "1,234" in line)
    assert line.split()[-6:] == ["traffic", "1,234", "30", "0", "91", "52"]
    assert show.left == 3


def test_without_a_terminal_lines_tell_how_far_it_is() -> None:
    show, out = shown(is_terminal=False)
    with show.live():
        show.says(step())
        show.events = 4711
        show.line()
    assert "4,711 events, 0 mails; rows of views: traffic 7" in out.getvalue()
    assert out.getvalue().count("traffic") == 1


def test_a_mail_is_shown_as_text_and_cut_where_it_is_long() -> None:
    show, out = shown(is_terminal=False)
    show.mailed(Mail("ops@example.com", "[red]/checkout[/red] fails", "\n".join(map(str, range(50))), ("rows.csv",)))
    assert "[red]/checkout[/red] fails" in out.getvalue(), "no markup"
    assert "rows.csv" in out.getvalue()
    assert "│ 11 " in out.getvalue()
    assert "│ 12 " not in out.getvalue()
