"""The demo's mail server is a real one."""

from __future__ import annotations

import smtplib
from email.message import EmailMessage
from urllib.parse import urlsplit

from penstock.demo.mailbox import Mail, Mailbox


def test_a_mail_is_told_with_its_text_and_attachments() -> None:
    came: list[Mail] = []
    message = EmailMessage()
    message["Subject"] = "Grüße: /checkout fails, and this is a subject that is longer than one line of a mail can be"
    message.set_content("79 times")
    message.add_alternative("<b>79 times</b>", subtype="html")
    message.add_attachment(b"a,b\n1,2\n", maintype="text", subtype="csv", filename="pages.csv")
    with Mailbox(came.append) as mailbox:
        address = urlsplit(mailbox.url)
        with smtplib.SMTP(str(address.hostname), int(address.port or 0)) as client:
            client.send_message(message, "penstock@example.com", ["ops@example.com", "boss@example.com"])
    [mail] = came
    assert mail == Mail("ops@example.com, boss@example.com", str(message["Subject"]), "79 times", ("pages.csv",))
