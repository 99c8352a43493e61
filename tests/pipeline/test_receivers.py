"""Whom an alert may name, and what is shown of it."""

from __future__ import annotations

import pytest

from penstock.pipeline.receivers import ReceiverUnclear, parse_receiver, shown_receiver


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("mailto:ops@example.com", "mail"),
        ("mailto:a@example.com,b@example.com", "mail"),
        ("https://hooks.example.com/x?y=z", "web"),
        ("http://localhost:8080/x", "web"),
        ("http://127.0.0.1/x", "web"),
        ("http://[::1]:80/x", "web"),
        ("topic:alarms.web-1", "topic"),
    ],
)
def test_a_receiver_is_understood(text: str, kind: str) -> None:
    found = parse_receiver(text)
    assert (found.kind, found.address) == (kind, text)


@pytest.mark.parametrize(
    "text",
    [
        "", "ops@example.com", "mail:ops@example.com", "mailto:", "mailto:ops", "mailto:@example.com", "mailto:a@b,",
        "mailto:a@b?subject=x", "mailto:a@b\r\nBcc: c@d", "mailto:a@b%0D%0ABcc:c@d", "mailto:<a@b>", "https://",
        "https:x", "http://example.com/x", "http://127.0.0.1.example.com/", "https://user:word@example.com/",
        "https://a b/", "https://a/\nb", "https://a:99999999/", "topic:", "topic:Alarms", "topic:x.dead", "ftp://example.com",
        "TOPIC:x",
    ],
)  # fmt: skip
def test_what_names_nobody_is_refused(text: str) -> None:
    with pytest.raises(ReceiverUnclear) as caught:
        parse_receiver(text)
    assert caught.value.expected


def test_a_bare_address_is_told_what_is_missing() -> None:
    with pytest.raises(ReceiverUnclear) as caught:
        parse_receiver("ops@example.com")
    assert caught.value.hint == "did you mean 'mailto:ops@example.com'?"


def test_what_may_be_secret_is_not_shown() -> None:
    assert (
        shown_receiver("https://hooks.example.com:8443/services/T0/secret?key=1")
        == "https://hooks.example.com:8443/..."
    )
    assert shown_receiver("https://hooks.example.com/") == "https://hooks.example.com"
    assert shown_receiver("mailto:ops@example.com") == "mailto:ops@example.com"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://user:SECRET@hooks.example.com/SECRET", "https://hooks.example.com/..."),
        ("https://hooks.example.com:abc/SECRET", "https://..."),
        ("https://[::1/SECRET", "https://..."),
        ("https://[::1]:80/SECRET", "https://[::1]:80/..."),
        ("HTTPS://hooks.example.com/SECRET", "https://hooks.example.com/..."),
        (" https://hooks.example.com/SECRET", "https://hooks.example.com/..."),
        ("http://hooks.example.com/@SECRET", "http://hooks.example.com/..."),
        ("https://hooks.example.com#SECRET", "https://hooks.example.com/..."),
        ("https:SECRET", "https://..."),
        ("hooks.example.com/SECRET", "..."),
        ("topic:https://hooks.example.com/SECRET", "..."),
        ("ftp://hooks.example.com/SECRET", "ftp://hooks.example.com/..."),
        ("mailto:a/b@example.com", "mailto:a/b@example.com"),
        ("nobody", "nobody"),
        ("", ""),
    ],
)
def test_whatever_is_written_its_secret_is_not_shown(text: str, shown: str) -> None:
    assert shown_receiver(text) == shown
