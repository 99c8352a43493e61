"""People are told where others could read along, once and with the same words."""

from __future__ import annotations

import pytest

from penstock.loopback import is_loopback, warn_of_plain


@pytest.fixture(autouse=True)
def _forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.loopback._warned", set())


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.8.8", "::1", "[::1]"])
def test_this_machine_is_known(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["broker", "10.0.0.1", "localhost.example.org", ""])
def test_other_machines_are_known(host: str) -> None:
    assert not is_loopback(host)


def test_the_same_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    for other in ("one", "one", "another"):
        warn_of_plain("log", other, "without encryption", "TLS")
    assert caplog.messages == [
        f"log: what is said to {other} leaves this machine without encryption: anybody on the way can read it\n"
        "  expected: TLS"
        for other in ("one", "another")
    ]
