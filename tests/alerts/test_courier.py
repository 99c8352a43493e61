"""Messages reach real mail servers and web hooks once each, whatever these do meanwhile."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from penstock.alerts import courier as courier_module
from penstock.alerts import entries as told
from penstock.alerts import smtp as smtp_module
from penstock.alerts.courier import Courier, delivering, pause_seconds
from penstock.alerts.mail import identity
from penstock.errors import StoreUnavailable
from penstock.pipeline.pipeline import Pipeline
from penstock.settings import AlertsSettings
from penstock.views.store import Store, open_store
from tests.alerts.mail_server import PASSWORD, USER, MailServer
from tests.alerts.waiting import entries, put, states
from tests.alerts.web_hook import WebHook

MAIL = "mailto:ops@example.com"


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(courier_module, "PAUSE_SECONDS", (0.05, 0.2))


def eventually(is_true: Callable[[], bool], seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < until, "it did not come true in time"
        time.sleep(0.02)


def settings(server: MailServer, **others: str) -> AlertsSettings:
    return AlertsSettings(**{"smtp": server.url, "sender": "penstock@example.com", "timeout": "5s", **others})


def test_a_mail_arrives_and_is_noted(any_store: Store) -> None:
    put(any_store, "mailto:ops@example.com,second@example.com")
    with MailServer() as server:
        assert Courier(any_store, settings(server)).deliver() == 1
        assert Courier(any_store, settings(server)).deliver() == 0
    [mail], [envelope] = server.mails, server.envelopes
    assert (envelope.mail_from, envelope.rcpt_tos) == (
        "penstock@example.com",
        ["ops@example.com", "second@example.com"],
    )
    assert mail["To"] == "ops@example.com, second@example.com"
    [entry] = entries(any_store)
    assert (entry.state, entry.attempts, entry.next_us, entry.error) == ("sent", 1, None, None)
    assert entry.sent_us is not None
    assert mail["Message-ID"] == f"<{identity(entry)}@penstock.invalid>"


def test_two_couriers_at_once_send_each_mail_once(any_store: Store) -> None:
    for number in range(30):
        put(any_store, MAIL, text=f"number {number}")
    with MailServer() as server:
        couriers = [Courier(any_store, settings(server)) for _ in range(2)]
        threads = [threading.Thread(target=each.deliver) for each in couriers]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        eventually(lambda: states(any_store) == ["sent"] * 30)
    assert len({mail["Message-ID"] for mail in server.mails}) == len(server.mails) == 30


def test_a_server_that_is_away_gets_every_mail_once_when_it_is_back(store: Store) -> None:
    server = MailServer()
    courier = Courier(store, settings(server))
    for _ in range(5):
        put(store, MAIL)
    courier.start()
    try:
        eventually(lambda: all(each.attempts >= 2 for each in entries(store)))
        assert states(store) == ["waiting"] * 5
        assert "Connection refused" in (entries(store)[0].error or "")
        with server:
            eventually(lambda: states(store) == ["sent"] * 5)
    finally:
        courier.close()
    assert len({mail["Message-ID"] for mail in server.mails}) == len(server.mails) == 5


@pytest.mark.parametrize("answer", ["450 mailbox busy", "421 going down", "452 too much"])
def test_a_mail_that_is_refused_for_now_is_tried_again(store: Store, answer: str) -> None:
    refusals = [answer, answer]
    with MailServer() as server:
        server.to_mail = lambda: refusals.pop() if refusals else None
        put(store, MAIL)
        courier = Courier(store, settings(server))
        courier.start()
        eventually(lambda: states(store) == ["sent"])
        courier.close()
    assert len(server.mails) == 1
    assert entries(store)[0].attempts == 3


def test_a_mail_that_nobody_may_get_has_failed_at_once(store: Store) -> None:
    with MailServer() as server:
        server.to_recipient = lambda address: "550 no such user" if address.startswith("no") else None
        put(store, "mailto:nobody@example.com")
        put(store, "mailto:nobody@example.com,ops@example.com")
        server.to_mail = lambda: None
        assert Courier(store, settings(server)).deliver() == 1
    failed, sent = entries(store)
    assert (failed.state, failed.attempts, failed.next_us) == ("failed", 1, None)
    assert "nobody@example.com 550 no such user" in (failed.error or "")
    assert (sent.state, sent.error) == ("sent", "refused: nobody@example.com 550 no such user")


def test_a_mail_that_is_refused_for_good_has_failed_at_once(store: Store) -> None:
    with MailServer() as server:
        server.to_mail = lambda: "554 this is spam\x07"
        put(store, MAIL)
        assert Courier(store, settings(server)).deliver() == 0
    [entry] = entries(store)
    assert entry.state == "failed"
    assert "answers 554 this is spam" in (entry.error or "")


@pytest.mark.parametrize("answer", ["421 bye", "500 what"])
def test_a_mail_that_was_taken_is_sent_whatever_the_goodbye_is(store: Store, answer: str) -> None:
    put(store, MAIL)
    with MailServer() as server:
        server.to_quit = answer
        assert Courier(store, settings(server)).deliver() == 1
    assert states(store) == ["sent"]


def test_recipients_that_are_refused_for_now_are_asked_again(store: Store) -> None:
    with MailServer() as server:
        server.to_recipient = lambda _: "450 greylisted"
        put(store, MAIL)
        assert Courier(store, settings(server)).deliver() == 0
    assert states(store) == ["waiting"]


def test_a_server_that_hangs_holds_up_a_mail_only_for_the_timeout(store: Store) -> None:
    with MailServer() as server:
        server.hang_seconds = 3
        put(store, MAIL)
        began = time.monotonic()
        assert Courier(store, settings(server, timeout="500ms")).deliver() == 0
        assert time.monotonic() - began < 3
    [entry] = entries(store)
    assert (entry.state, entry.attempts) == ("waiting", 1)
    assert "in time" in (entry.error or "")


def test_after_a_while_a_mail_is_given_up_and_can_be_asked_for_again(store: Store) -> None:
    clock = [1_000_000_000_000_000]
    server = MailServer()
    put(store, MAIL, next_us=0, created_us=0)
    courier = Courier(store, settings(server, give_up_after="1h"), clock=lambda: clock[0])
    for _ in range(3):
        courier.deliver()
        assert states(store) == ["waiting"]
        clock[0] += 1_200_000_000
    courier.deliver()
    assert states(store) == ["failed"]
    assert entries(store)[0].attempts == 4


def test_starttls_with_an_own_authority_is_used_and_checked(store: Store, authority: trustme.CA, ca: str) -> None:
    with MailServer(certificate=authority.issue_cert("127.0.0.1"), needs_login=True) as server:
        put(store, MAIL)
        url = f"smtp://{USER}:s3cret%2F%40%3A@127.0.0.1:{server.port}"
        assert Courier(store, settings(server, smtp=url, ca=ca)).deliver() == 1
        assert server.was_encrypted == [True]


def test_tls_from_the_start_is_used_and_checked(store: Store, authority: trustme.CA, ca: str) -> None:
    with MailServer(certificate=authority.issue_cert("127.0.0.1"), has_tls_at_once=True) as server:
        put(store, MAIL)
        assert Courier(store, settings(server, smtp=f"smtps://127.0.0.1:{server.port}", ca=ca)).deliver() == 1


@pytest.mark.parametrize("has_tls_at_once", [False, True])
def test_a_certificate_of_somebody_else_is_not_trusted(
    store: Store, authority: trustme.CA, ca: str, *, has_tls_at_once: bool
) -> None:
    for certificate in (trustme.CA().issue_cert("127.0.0.1"), authority.issue_cert("elsewhere.example.com")):
        with MailServer(certificate=certificate, has_tls_at_once=has_tls_at_once) as server:
            number = put(store, MAIL)
            url = f"{'smtps' if has_tls_at_once else 'smtp'}://127.0.0.1:{server.port}"
            assert Courier(store, settings(server, smtp=url, ca=ca)).deliver() == 0
            assert server.mails == []
        found = entries(store)[number - 1]
        assert found.state == "waiting"
        assert "certificate verify failed" in (found.error or "")


def test_a_server_without_tls_is_told_nothing_where_tls_is_needed(store: Store, ca: str) -> None:
    with MailServer() as server:
        put(store, MAIL)
        assert Courier(store, settings(server, ca=ca)).deliver() == 0
        assert server.sessions == 0
    assert "STARTTLS" in (entries(store)[0].error or "")


def test_a_wrong_password_is_noted_and_nobody_reads_it(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    with MailServer(needs_login=True) as server:
        put(store, MAIL)
        chosen = settings(server, smtp=f"smtp://{USER}:hunter2@127.0.0.1:{server.port}")
        with caplog.at_level(logging.DEBUG):
            assert Courier(store, chosen).deliver() == 0
        [entry] = entries(store)
        assert (entry.state, "535" in (entry.error or "")) == ("waiting", True)
        told = f"{entry} {caplog.text} {chosen!r}"
        assert "hunter2" not in told
        right = settings(server, smtp=f"smtp://{USER}:s3cret%2F%40%3A@127.0.0.1:{server.port}")
        eventually(lambda: Courier(store, right).deliver() == 1)
    assert PASSWORD not in f"{entries(store)} {right!r}"


def test_without_a_mail_server_mails_wait_for_one(store: Store) -> None:
    put(store, MAIL)
    assert Courier(store, AlertsSettings()).deliver() == 0
    assert [(each.state, each.attempts) for each in entries(store)] == [("waiting", 0)]
    with MailServer() as server:
        assert Courier(store, settings(server)).deliver() == 1


def test_a_web_hook_gets_the_rows_once_after_it_came_back(store: Store, authority: trustme.CA, ca: str) -> None:
    with WebHook(authority.issue_cert("127.0.0.1")) as hook:
        hook.answers = [500, 503, 429, 408]
        put(store, hook.url)
        courier = Courier(store, AlertsSettings(ca=ca))
        courier.start()
        eventually(lambda: states(store) == ["sent"])
        courier.close()
    [document] = hook.taken
    assert len(hook.asked) == 5
    assert len({*hook.asked}) == 1
    assert (document["pipeline"], document["alert"], document["view"]) == ("shop", "too_many", "errors")
    assert (document["time"], document["rows_total"]) == ("2026-01-01T12:00:00Z", 1)
    assert document["rows"][0]["errors"] == 31
    assert document["text"] == "[shop] too_many: /pay failed 31 times"
    assert "secret" not in repr(entries(store))


@pytest.mark.parametrize("status", [400, 401, 404, 410, 302])
def test_a_web_hook_that_refuses_is_not_asked_again(store: Store, status: int) -> None:
    with WebHook() as hook:
        hook.answers = [status]
        put(store, hook.url)
        assert Courier(store, AlertsSettings()).deliver() == 0
    [entry] = entries(store)
    assert (entry.state, entry.error) == ("failed", f"it answers {status}")


def test_a_web_hook_that_has_said_yes_need_not_say_more(store: Store) -> None:
    with WebHook() as hook:
        hook.body_bytes = 2
        put(store, hook.url)
        assert Courier(store, AlertsSettings(timeout="500ms")).deliver() == 1
    assert states(store) == ["sent"]


def test_an_authority_that_is_missing_is_waited_for(store: Store, tmp_path: Path) -> None:
    put(store, "https://127.0.0.1:1/x")
    put(store, MAIL)
    chosen = AlertsSettings(ca=f"file:{tmp_path}/none.pem", smtp="smtps://127.0.0.1:1")
    assert Courier(store, chosen).deliver() == 0
    assert states(store) == ["waiting", "waiting"]
    assert all("No such file" in (each.error or "") for each in entries(store))


def test_a_web_hook_with_a_certificate_of_somebody_else_is_told_nothing(store: Store, ca: str) -> None:
    with WebHook(trustme.CA().issue_cert("127.0.0.1")) as hook:
        put(store, hook.url)
        assert Courier(store, AlertsSettings(ca=ca)).deliver() == 0
        assert hook.asked == []
    [entry] = entries(store)
    assert entry.state == "waiting"
    assert "cannot be trusted" in (entry.error or "")


def test_a_web_hook_that_is_away_is_tried_again(store: Store) -> None:
    with WebHook() as hook:
        url, port = hook.url, hook.port
    put(store, url)
    courier = Courier(store, AlertsSettings())
    courier.start()
    eventually(lambda: entries(store)[0].attempts >= 2)
    with WebHook(port=port) as back:
        eventually(lambda: states(store) == ["sent"])
        assert len(back.taken) == 1
    courier.close()


def test_a_courier_that_died_while_sending_is_followed_by_another(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one way to send a mail twice: the server has taken it, and nobody wrote that down."""

    class Killed(BaseException):
        pass

    def killed(*_: object, **__: object) -> bool:
        raise Killed

    put(store, MAIL)
    clock = [time.time_ns() // 1000]
    with MailServer() as server:
        with monkeypatch.context() as patched:
            patched.setattr(told, "settle", killed)
            with pytest.raises(Killed):
                Courier(store, settings(server), clock=lambda: clock[0]).deliver()
        assert Courier(store, settings(server), clock=lambda: clock[0]).deliver() == 0
        clock[0] += 3600 * 1_000_000
        assert Courier(store, settings(server), clock=lambda: clock[0]).deliver() == 1
    assert len({mail["Message-ID"] for mail in server.mails}) == 1
    assert len(server.mails) == 2


@pytest.mark.parametrize("patience_seconds", [courier_module.NOTE_SECONDS, 0.0])
def test_a_mail_that_was_sent_is_noted_however_long_the_database_is_away(
    store: Store, monkeypatch: pytest.MonkeyPatch, patience_seconds: float
) -> None:
    monkeypatch.setattr(courier_module, "NOTE_SECONDS", patience_seconds)
    failures = [StoreUnavailable("sqlite:views.db", "it is locked")] * 3
    real = told.settle

    def failing(*arguments: Any, **values: Any) -> bool:
        if failures:
            raise failures.pop()
        return real(*arguments, **values)

    monkeypatch.setattr(told, "settle", failing)
    put(store, MAIL)
    with MailServer() as server:
        assert Courier(store, settings(server)).deliver() == 1
    assert states(store) == ["sent"]
    assert len(server.mails) == 1


def test_a_mail_that_takes_longer_than_a_claim_is_sent_by_one_courier(
    any_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(courier_module, "LEASE_SECONDS", 0.8)
    monkeypatch.setattr(courier_module, "LOOK_SECONDS", 0.1)
    put(any_store, MAIL)
    with MailServer() as server:
        server.hang_seconds = 3
        couriers = [Courier(any_store, settings(server, timeout="20s")) for _ in range(2)]
        for each in couriers:
            each.start()
        eventually(lambda: states(any_store) == ["sent"])
        for each in couriers:
            each.close()
    assert (server.sessions, entries(any_store)[0].attempts) == (1, 1)


def test_a_server_that_is_slow_each_time_is_left_in_the_end(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smtp_module, "SENDING_TIMEOUTS", 0.5)
    put(store, "mailto:" + ",".join(f"a{number}@example.com" for number in range(10)))
    with MailServer() as server:
        server.to_recipient = lambda _: time.sleep(0.4)
        began = time.monotonic()
        assert Courier(store, settings(server, timeout="2s")).deliver() == 0
        assert time.monotonic() - began < 3
    assert (states(store), server.mails) == (["waiting"], [])


def test_a_courier_that_is_to_end_waits_for_the_mail_it_is_sending(store: Store) -> None:
    put(store, "mailto:" + ",".join(f"a{number}@example.com" for number in range(9)))
    is_asked = threading.Event()

    def slowly(_: str) -> None:
        is_asked.set()
        time.sleep(0.9)

    with MailServer() as server:
        server.to_recipient = slowly
        courier = Courier(store, settings(server, timeout="2s"))
        courier.start()
        assert is_asked.wait(20)
        courier.close()
        assert states(store) == ["sent"]


def test_a_claim_of_another_is_waited_for_without_asking_all_the_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    real = told.due

    def counted(*arguments: Any) -> list[tuple[str, str, int]]:
        looks.append(1)
        return real(*arguments)

    monkeypatch.setattr(told, "due", counted)
    put(store, "http://127.0.0.1:9/x", holder="another", lease_us=time.time_ns() // 1000 + 200_000_000)
    courier = Courier(store, AlertsSettings())
    courier.start()
    time.sleep(1.5)
    began = time.monotonic()
    courier.close(grace_seconds=10)
    assert time.monotonic() - began < 5
    assert len(looks) <= 2


def test_an_address_that_names_nobody_has_failed_at_once(store: Store) -> None:
    put(store, "https://[::1/secret")
    put(store, "https://hooks.example.com:abc/secret")
    assert Courier(store, AlertsSettings()).deliver() == 0
    assert states(store) == ["failed", "failed"]
    assert "nobody can be told that way" in (entries(store)[0].error or "")
    assert "secret" not in repr(entries(store))


def test_a_password_that_is_not_ascii_is_said_without_it(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    put(store, MAIL)
    with MailServer(needs_login=True) as server, caplog.at_level(logging.DEBUG):
        url = f"smtp://{USER}:p%C3%A4ssw%C3%B6rt@127.0.0.1:{server.port}"
        assert Courier(store, settings(server, smtp=url)).deliver() == 0
    [entry] = entries(store)
    assert entry.state == "waiting"
    assert "the user or the password in alerts.smtp is not plain ASCII" in (entry.error or "")
    assert "xe4" not in f"{entry} {caplog.text}"
    assert "\u00e4" not in f"{entry} {caplog.text}"


def test_a_run_gives_its_last_mails_time_to_go_out(store: Store) -> None:
    app = Pipeline("shop")
    app.alert("errors", to=[MAIL])
    refusals = ["450 not yet"]
    with MailServer() as server:
        server.to_mail = lambda: refusals.pop() if refusals else None
        with delivering(app.alerts.values(), store, settings(server)) as wake:
            put(store, MAIL)
            wake()
        assert states(store) == ["sent"]


def test_a_run_without_mails_or_hooks_has_no_courier(store: Store) -> None:
    app = Pipeline("shop")
    app.alert("errors", to="topic:alarms")
    before = threading.active_count()
    with delivering(app.alerts.values(), store, AlertsSettings()):
        assert threading.active_count() == before


def test_a_courier_waits_for_a_database_that_is_not_there_yet(tmp_path: object) -> None:
    opened: list[Store] = []
    with MailServer() as server:
        courier = Courier(lambda: opened[0] if opened else None, settings(server))
        courier.start()
        with open_store(f"sqlite:{tmp_path}/later.db") as store:
            put(store, MAIL)
            opened.append(store)
            courier.wake()
            eventually(lambda: states(store) == ["sent"])
            courier.close()


def test_pauses_grow_to_a_limit_and_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(courier_module, "PAUSE_SECONDS", (1.0, 300.0))
    for attempts, expected in ((1, 1), (2, 2), (5, 16), (9, 256), (10, 300), (1000, 300)):
        found = [pause_seconds(attempts) for _ in range(50)]
        assert all(0.75 * expected <= each <= 1.25 * expected for each in found)
        assert len({*found}) > 1
