"""Text from outside is shown, and steers neither a terminal nor a spreadsheet."""

from __future__ import annotations

import io
import json
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.output import print_json, print_json_line, print_table
from penstock.cli.terminal import Terminal
from penstock.printable import printable, printable_output

HOSTILE = "\x1b]0;owned\x07 \x9b2J \u202egnp.exe \u2066x \x7f \r overwritten \u2028 \ud800"


def is_harmless(text: str) -> bool:
    return not any(
        (unicodedata.category(each) in ("Cc", "Cs", "Zl", "Zp") and each not in "\n\t")
        or unicodedata.bidirectional(each) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
        for each in text
    )  # fmt: skip


@given(st.text(st.characters(exclude_categories=[])))
def test_no_text_is_left_that_a_terminal_obeys(text: str) -> None:
    assert is_harmless(printable(text))


@given(st.text(st.characters(exclude_categories=[])))
def test_json_stays_the_same_document(text: str) -> None:
    assert json.loads(printable(json.dumps({"text": text}, ensure_ascii=False))) == {"text": text}


def test_ordinary_text_is_left_as_it_is() -> None:
    for text in ("größer\tals\n", "日本語", "👩‍👩‍👧", "שלום", "a\\u0007"):
        assert printable(text) == text


def test_whatever_a_command_prints_is_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    with printable_output():
        print(HOSTILE)
        print(HOSTILE, file=sys.stderr)
        sys.stdout.writelines([HOSTILE])
        print_json({"text": HOSTILE})
        print_json_line({"text": HOSTILE})
        print_table([HOSTILE, "[red]n[/red]"], [[HOSTILE, 1]], title="t")
    printed = capsys.readouterr()
    assert is_harmless(printed.out)
    assert is_harmless(printed.err)
    assert "owned" in printed.err
    assert "[red]n[/red]" in printed.out


def test_only_rich_itself_steers_the_terminal() -> None:
    target = io.StringIO()
    console = Terminal(force_terminal=True, color_system="standard", width=200, highlight=False)
    console.file = target
    console.print(HOSTILE, markup=False, style="red")
    console.show_cursor(False)
    shown = target.getvalue()
    assert shown.startswith("\x1b[31m")
    assert "\x1b[?25l" in shown
    for order in ("\x1b]0;", "\x9b", "\u202e", "\r"):
        assert order not in shown


def test_output_is_as_before_afterwards() -> None:
    before = sys.stdout, sys.stderr
    with pytest.raises(ValueError, match="x"), printable_output():
        raise ValueError("x")
    assert (sys.stdout, sys.stderr) == before
