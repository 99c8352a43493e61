"""What an entry looks like as an e-mail, and that nothing in a row can make it look otherwise."""

from __future__ import annotations

import csv
import io
from email import message_from_bytes, policy
from email.message import EmailMessage

import pytest

from penstock.alerts.chart import Series, draw
from penstock.alerts.mail import compose, csv_of, identity
from tests.alerts.waiting import NOON_US, ROW, entry

PNG = b"\x89PNG\r\n\x1a\n"
HEADERS = {
    "Subject", "From", "To", "Date", "Message-ID", "Auto-Submitted", "X-Penstock-Alert", "MIME-Version", "Content-Type",
}  # fmt: skip


def sent(message: EmailMessage) -> EmailMessage:
    """As it arrives: written out and read again."""
    found = message_from_bytes(message.as_bytes(), policy=policy.default)
    assert isinstance(found, EmailMessage)
    return found


def part(message: EmailMessage, kind: str) -> str:
    body = message.get_body((kind,))
    assert body is not None
    text: str = body.get_content()
    return text


def test_a_mail_has_a_text_a_page_a_picture_and_the_rows() -> None:
    chart = draw(Series("errors", ["12:00", "12:01"], [3, 31], is_line=True))
    mail = sent(compose(entry(), sender="penstock@example.com", chart=chart))
    assert (mail["From"], mail["To"]) == ("penstock@example.com", "ops@example.com")
    assert mail["Subject"] == "[shop] too_many: /pay failed 31 times"
    assert mail["Date"] == "Thu, 01 Jan 2026 12:00:00 +0000"
    kinds = [each.get_content_type() for each in mail.walk()]
    assert kinds == [
        "multipart/mixed", "multipart/alternative", "text/plain", "multipart/related", "text/html", "image/png",
        "text/csv", "image/png",
    ]  # fmt: skip
    assert "/pay failed 31 times" in part(mail, "plain")
    assert "window                                       url    errors   share" in part(mail, "plain")
    assert "2026-01-01 12:00:00 .. 2026-01-01 12:01:00   /pay   31       0.50" in part(mail, "plain")
    assert "penstock alert show shop too_many 7" in part(mail, "plain")
    pictures = [each for each in mail.walk() if each.get_content_type() == "image/png"]
    assert [each.get_content_disposition() for each in pictures] == ["inline", "attachment"]
    assert all(each.get_content() == chart and chart.startswith(PNG) for each in pictures)
    assert f'src="cid:{pictures[0]["Content-ID"].strip("<>")}"' in part(mail, "html")
    rows = next(each for each in mail.iter_attachments() if each.get_content_type() == "text/csv")
    assert rows.get_filename() == "errors.csv"
    assert [*csv.reader(io.StringIO(rows.get_content()))] == [
        ["window", "url", "errors", "share"],
        ["2026-01-01 12:00:00 .. 2026-01-01 12:01:00", "/pay", "31", "0.50"],
    ]


def test_a_mail_without_a_picture_is_whole_too() -> None:
    mail = sent(compose(entry()))
    assert "image/png" not in [each.get_content_type() for each in mail.walk()]
    assert "cid:" not in part(mail, "html")


@pytest.mark.parametrize(
    "breaking", ["\r\nBcc: evil@example.com", "\nBcc: evil@example.com", "\x0bBcc: a@b", "\u2028B: c"]
)
def test_a_line_break_in_a_value_begins_no_header(breaking: str) -> None:
    row = {"url": f"/pay{breaking}", "errors": 31}
    mail = sent(compose(entry(text=f"/pay{breaking} failed", rows=[row], pipeline=f"shop{breaking}"), chart=PNG))
    assert mail["Bcc"] is None
    assert {*mail.keys()} == HEADERS
    assert "evil" not in str(mail["Subject"])
    assert b"Bcc:" not in mail.as_bytes().partition(b"\n\n")[0]


def test_markup_in_a_value_stays_text() -> None:
    row = {"<b>url</b>": "<script>alert(1)</script>", "errors": '"><img src=x onerror=alert(1)>'}
    page = part(sent(compose(entry(text="<h1>broken</h1>", rows=[row], view="<i>v</i>"), chart=PNG)), "html")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    for tag in ("<script", "<img src=x", "<h1>", "<b>", "<i>"):
        assert tag not in page


def test_a_formula_in_a_value_is_not_computed_by_a_spreadsheet() -> None:
    written = csv_of([{"name": "=cmd|' /C calc'!A0", "n": -5, "t": "-1+1"}])
    assert [*csv.reader(io.StringIO(written))][1] == ["'=cmd|' /C calc'!A0", "-5", "'-1+1"]


def test_a_long_or_strange_text_is_a_short_subject() -> None:
    mail = sent(compose(entry(text="ä" * 5000, rows=[ROW] * 3, rows_total=2000)))
    assert len(str(mail["Subject"])) <= 150
    assert str(mail["Subject"]).endswith("... (and 1,999 more)")
    assert sent(compose(entry(text="\x00\x07 \ud83d".encode("utf-8", "replace").decode())))["Subject"]


def test_only_some_of_many_rows_are_in_the_text_and_all_are_in_the_file() -> None:
    rows = [{"url": f"/{number}", "errors": number} for number in range(1000)]
    mail = sent(compose(entry(rows=rows, rows_total=4000)))
    assert "4,000 rows of errors, 50 shown here, as of 2026-01-01T12:00:00Z" in part(mail, "plain")
    [table] = [each for each in mail.iter_attachments() if each.get_content_type() == "text/csv"]
    assert len(table.get_content().splitlines()) == 1001


def test_the_same_entry_has_the_same_identity_and_another_one_another() -> None:
    assert compose(entry())["Message-ID"] == compose(entry(attempts=3, state="failed"))["Message-ID"]
    others = [entry(), entry(number=8), entry(alert="x"), entry(pipeline="y"), entry(created_us=NOON_US + 1)]
    assert len({identity(each) for each in others}) == len(others)


def test_numbers_below_zero_are_no_formulas() -> None:
    rows = [{"paid": "-5.00", "small": "-1.5E-7", "sum": "-2+3", "version": "release 1.000000", "exact": "5.000000"}]
    assert csv_of(rows).splitlines()[1] == "-5.00,-1.5E-7,'-2+3,release 1.000000,5.000000"
