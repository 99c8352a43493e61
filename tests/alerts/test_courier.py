"""Messages reach real mail servers and web hooks once each, whatever these servers do."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from penstock.alerts import entries as told
from penstock.alerts import smtp as smtp_module
from penstock.alerts.courier import TIMING, Courier, Timing, delivering, pause_seconds
from penstock.alerts.mail import identity
from penstock.clock import HOUR_US, now_us
from penstock.errors import StoreUnavailable
from penstock.pipeline.pipeline import Pipeline
from penstock.service.server import serving
from penstock.settings import AlertsSettings, LogSettings, ServeSettings, Settings, ViewsSettings
from penstock.testing import ManualClock
from penstock.views.database_clock import moment_us
from penstock.views.store import Store, open_store
from tests.alerts.mail_server import PASSWORD, USER, MailServer
from tests.alerts.waiting import entries, put, states
from tests.alerts.web_hook import WebHook
from tests.eventually import LIMIT_SECONDS, eventually

MAIL = "mailto:ops@example.com"
SHORT = Timing(pauses=(0.05, 0.2), note_pause=0.01, grace=3600)


def standing_clock() -> ManualClock:
    """A clock that stands still, at a time when everything the test puts is due."""
    return ManualClock(now_us() + HOUR_US)


def settings(server: MailServer, **others: str) -> AlertsSettings:
    return AlertsSettings(**{"smtp": server.url, "sender": "penstock@example.com", "timeout": "1h", **others})


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
    courier = Courier(store, settings(server), timing=SHORT)
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
        courier = Courier(store, settings(server), timing=SHORT)
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


def test_a_server_that_hangs_is_given_up_after_the_timeout(store: Store) -> None:
    with MailServer() as server:
        server.may_answer.clear()  # It hangs until the attempt is over.
        put(store, MAIL)
        assert Courier(store, settings(server, timeout="500ms")).deliver() == 0
    [entry] = entries(store)
    assert (entry.state, entry.attempts) == ("waiting", 1)
    assert "in time" in (entry.error or "")


def test_after_a_while_a_mail_is_given_up_and_can_be_asked_for_again(store: Store) -> None:
    clock = ManualClock()
    server = MailServer()
    put(store, MAIL, next_us=0, created_us=0)
    courier = Courier(store, settings(server, give_up_after="1h"), clock=clock)
    for _ in range(3):
        courier.deliver()
        assert states(store) == ["waiting"]
        clock.move(timedelta(minutes=20))
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


def test_a_wrong_password_is_noted_and_never_shown(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    clock = standing_clock()
    with MailServer(needs_login=True) as server:
        put(store, MAIL)
        chosen = settings(server, smtp=f"smtp://{USER}:hunter2@127.0.0.1:{server.port}")
        with caplog.at_level(logging.DEBUG):
            assert Courier(store, chosen, clock=clock).deliver() == 0
        [entry] = entries(store)
        assert (entry.state, "535" in (entry.error or "")) == ("waiting", True)
        told = f"{entry} {caplog.text} {chosen!r}"
        assert "hunter2" not in told
        right = settings(server, smtp=f"smtp://{USER}:s3cret%2F%40%3A@127.0.0.1:{server.port}")
        clock.move(timedelta(hours=1))
        assert Courier(store, right, clock=clock).deliver() == 1
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
        courier = Courier(store, AlertsSettings(ca=ca), timing=SHORT)
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


def test_the_body_of_a_web_hooks_answer_is_not_waited_for(store: Store) -> None:
    with WebHook() as hook:
        hook.body_bytes = 2
        put(store, hook.url)
        assert Courier(store, AlertsSettings(timeout="1h")).deliver() == 1
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
    hook = WebHook()
    put(store, hook.url)
    courier = Courier(store, AlertsSettings(), timing=SHORT)
    courier.start()
    eventually(lambda: entries(store)[0].attempts >= 2)
    with hook:
        eventually(lambda: states(store) == ["sent"])
        assert len(hook.taken) == 1
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
    clock = standing_clock()
    with MailServer() as server:
        with monkeypatch.context() as patched:
            patched.setattr(told, "settle", killed)
            with pytest.raises(Killed):
                Courier(store, settings(server), clock=clock).deliver()
        assert Courier(store, settings(server), clock=clock).deliver() == 0
        clock.move(timedelta(hours=1))
        assert Courier(store, settings(server), clock=clock).deliver() == 1
    assert len({mail["Message-ID"] for mail in server.mails}) == 1
    assert len(server.mails) == 2


@pytest.mark.parametrize("note_seconds", [TIMING.note, 0.0])
def test_a_sent_mail_is_noted_however_long_the_database_is_away(
    store: Store, monkeypatch: pytest.MonkeyPatch, note_seconds: float
) -> None:
    failures = [StoreUnavailable("sqlite:views.db", "it is locked")] * 3
    real = told.settle

    def failing(*arguments: Any, **values: Any) -> bool:
        if failures:
            raise failures.pop()
        return real(*arguments, **values)

    monkeypatch.setattr(told, "settle", failing)
    put(store, MAIL)
    with MailServer() as server:
        courier = Courier(store, settings(server), timing=replace(SHORT, note=note_seconds))
        assert courier.deliver() == 1
    assert states(store) == ["sent"]
    assert len(server.mails) == 1


def test_a_mail_that_takes_longer_than_a_claim_is_sent_once(any_store: Store) -> None:
    clock, timing = standing_clock(), replace(SHORT, lease=0.4)
    put(any_store, MAIL)

    def is_renewed() -> bool:
        with any_store.snapshot() as snapshot:
            return told.next_due(snapshot.connection, ["mailto"]) == clock.now_us + 400_000

    with MailServer() as server:
        server.may_answer.clear()
        courier, other = (Courier(any_store, settings(server), clock=clock, timing=timing) for _ in range(2))
        courier.start()
        assert server.is_asked.wait(LIMIT_SECONDS)
        for _ in range(3):
            clock.move(timedelta(seconds=0.3))
            eventually(is_renewed)
            assert other.deliver() == 0
        server.may_answer.set()
        eventually(lambda: states(any_store) == ["sent"])
        courier.close()
    assert (server.sessions, entries(any_store)[0].attempts) == (1, 1)


def test_a_mail_has_a_total_limit_even_if_each_answer_is_in_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smtp_module, "SENDING_TIMEOUTS", 0.5 / 3600)  # The timeout of a single answer is an hour.
    put(store, "mailto:" + ",".join(f"a{number}@example.com" for number in range(10)))
    with MailServer() as server:
        server.to_recipient = lambda _: time.sleep(0.2)
        assert Courier(store, settings(server)).deliver() == 0
        assert (states(store), server.mails) == (["waiting"], [])


def test_a_courier_that_closes_waits_for_the_mail_it_is_sending(store: Store) -> None:
    put(store, MAIL)
    is_closed = threading.Event()

    def close() -> None:
        courier.close()
        is_closed.set()

    with MailServer() as server:
        server.may_answer.clear()
        courier = Courier(store, settings(server))
        courier.start()
        assert server.is_asked.wait(LIMIT_SECONDS)
        closing = threading.Thread(target=close)
        closing.start()
        assert not is_closed.wait(0.3)
        server.may_answer.set()
        closing.join()
        assert states(store) == ["sent"]


@pytest.mark.timing
def test_a_courier_that_closes_waits_longer_than_for_one_answer(store: Store) -> None:
    put(store, "mailto:" + ",".join(f"a{number}@example.com" for number in range(9)))
    is_asked = threading.Event()

    def slowly(_: str) -> None:
        is_asked.set()
        time.sleep(0.9)

    with MailServer() as server:
        server.to_recipient = slowly
        courier = Courier(store, settings(server, timeout="2s"))
        courier.start()
        assert is_asked.wait(LIMIT_SECONDS)
        courier.close()
        assert states(store) == ["sent"]


def test_an_entry_that_another_courier_holds_is_not_polled(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    real = told.due

    def counted(*arguments: Any) -> list[tuple[str, str, int]]:
        looks.append(1)
        return real(*arguments)

    monkeypatch.setattr(told, "due", counted)
    clock = standing_clock()
    put(store, "http://127.0.0.1:9/x", holder="another", lease_us=clock.now_us + 2 * HOUR_US)
    courier = Courier(store, AlertsSettings(), clock=clock, timing=replace(SHORT, look=3600))
    courier.start()
    eventually(lambda: looks)
    time.sleep(0.3)
    assert len(looks) == 1
    courier.close(grace_seconds=3600)  # It does not wait for the other one either.


def test_a_courier_whose_clock_is_ahead_takes_no_claim_of_another(
    any_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with any_store.snapshot() as snapshot:
        now = moment_us(snapshot.connection)
    put(any_store, "http://127.0.0.1:9/x", next_us=now, holder="another", lease_us=now + HOUR_US)
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + 2 * HOUR_US * 1000)
    assert Courier(any_store, AlertsSettings()).deliver() == 0
    [entry] = entries(any_store)
    assert entry.attempts == 0


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
        with delivering(app.alerts.values(), store, settings(server), timing=SHORT) as wake:
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


def test_the_service_sends_what_waits(tmp_path: Path) -> None:
    with MailServer() as server:
        chosen = Settings(
            log=LogSettings(f"dir:{tmp_path}/log"),
            views=ViewsSettings(f"sqlite:{tmp_path}/views.db"),
            serve=ServeSettings(port=0, tokens=f"file:{tmp_path}/tokens.json"),
            alerts=settings(server),
        )
        with open_store(chosen.views.url) as store:
            put(store, MAIL)
            with serving(chosen):
                eventually(lambda: states(store) == ["sent"])
    assert len(server.mails) == 1


def test_pauses_grow_to_a_limit_and_differ() -> None:
    for attempts, expected in ((1, 1), (2, 2), (5, 16), (9, 256), (10, 300), (1000, 300)):
        found = [pause_seconds(attempts, (1.0, 300.0)) for _ in range(50)]
        assert all(0.75 * expected <= each <= 1.25 * expected for each in found)
        assert len({*found}) > 1
