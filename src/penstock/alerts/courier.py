"""The courier: carries what steps have written to mail servers and web hooks, and tries again until it is there.

Any number of couriers may be at work on one database, in runs and in services: each claims an entry before it sends it.
A courier that dies between the receiver's yes and its note of it is the one way in which something is sent twice; the
second one has the same Message-ID, or the same Idempotency-Key.
"""

from __future__ import annotations

import logging
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from penstock.alerts import entries
from penstock.alerts.chart import chart_of
from penstock.alerts.entries import Claimed, Entry
from penstock.alerts.mail import compose
from penstock.alerts.smtp import SENDING_TIMEOUTS, MailServer, default_sender
from penstock.alerts.web import post
from penstock.clock import Clock, now_us
from penstock.durations import parse_duration
from penstock.errors import NotDelivered, PenstockError
from penstock.pipeline.definition import AlertSpec
from penstock.pipeline.receivers import Receiver, ReceiverUnclear, parse_receiver
from penstock.settings import AlertsSettings
from penstock.views.database_clock import DATABASE_NOW_US, moment_us
from penstock.views.store import Store

_log = logging.getLogger("penstock.alerts")

FORGET_SECONDS = 3600.0
"""How often entries that are older than `alerts.keep` are removed."""
ROUND_ENTRIES = 100
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Timing:
    """The intervals of a courier, in seconds."""

    look: float = 5.0
    """How often it looks for entries that other processes have written."""
    pauses: tuple[float, float] = (1.0, 300.0)
    """The pause before the second attempt, and the longest one. Each pause is twice the one before."""
    lease: float = 120.0
    """How long a claim lasts unless it is renewed. After that, its courier is taken to be dead."""
    note: float = 60.0
    """How long a courier that is closing keeps trying to record that a message was sent."""
    note_pause: float = 0.5
    """The pause between two such attempts."""
    grace: float = 10.0
    """How long a run that ends waits for its last messages to be sent."""


TIMING = Timing()


class Courier:
    """Sends what waits, in a thread of its own. `store` may be a function: it is asked again until there is one.

    Mails wait while no mail server is named (`alerts.smtp`); another courier, or this one after a restart with the
    setting, sends them.
    """

    def __init__(
        self,
        store: Store | Callable[[], Store | None],
        settings: AlertsSettings,
        *,
        clock: Clock | None = None,
        timing: Timing = TIMING,
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._timing = timing
        self._server = MailServer.of(settings)
        self._schemes = ("https", "http", *(("mailto",) if self._server is not None else ()))
        self._timeout_seconds = parse_duration(settings.timeout).total_seconds()
        self._give_up_us = parse_duration(settings.give_up_after) // _MICROSECOND
        self._keep_us = parse_duration(settings.keep) // _MICROSECOND
        self._holder = secrets.token_hex(8)
        self._wakeup = threading.Event()
        self._stopping = threading.Event()
        self._forget_at = 0.0
        self._is_away = False
        self._is_sending = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins to send what waits."""
        self._thread = threading.Thread(target=self._work, name="penstock-courier", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """There is something new. Any thread may say so."""
        self._wakeup.set()

    def close(self, *, grace_seconds: float = 0.0) -> None:
        """Ends it; first lets it try, for so long at most, what was written so far. What was not sent waits."""
        if self._thread is None:
            return
        until = time.monotonic() + grace_seconds
        while (left := until - time.monotonic()) > 0 and (self._is_sending or self._seconds_until_due(left) < left):
            self.wake()
            self._stopping.wait(min(left, 0.1))
        self._stopping.set()
        self._wakeup.set()
        # A message that is under way is not cut off: it may be there already, and nobody would know.
        self._thread.join(SENDING_TIMEOUTS * self._timeout_seconds + self._timing.note + 5)

    def deliver(self) -> int:
        """Sends, right here, what is due now; returns how many were sent. Each is tried once."""
        store = self._store() if callable(self._store) else self._store
        if store is None:
            return 0
        sent = 0
        tried: set[tuple[str, str, int]] = set()
        while not self._stopping.is_set():
            with store.snapshot() as snapshot:
                found = entries.due(snapshot.connection, self._now(), self._schemes, ROUND_ENTRIES + len(tried))
            places = [each for each in found if each not in tried]
            if not places:
                break
            for place in places:
                tried.add(place)
                if not self._stopping.is_set():
                    sent += self._try(store, place)
        self._forget(store)
        return sent

    def _work(self) -> None:
        while not self._stopping.is_set():
            self._wakeup.clear()
            try:
                self.deliver()
                self._is_away = False
            except PenstockError as error:  # The database is away: what waits there, waits.
                if not self._is_away:
                    _log.warning("alerts: nothing can be sent at the moment: %s", error)
                self._is_away = True
            except Exception:
                _log.exception("alerts: the courier came upon something unexpected, and goes on")
            # Not at once again: what is due and was not sent is in the hands of another courier.
            self._wakeup.wait(max(self._seconds_until_due(self._timing.look), 0.1))

    def _seconds_until_due(self, longest: float) -> float:
        """How long until an entry is due; `longest` if there is none, or nobody can tell."""
        try:
            store = self._store() if callable(self._store) else self._store
            if store is None:
                return longest
            with store.snapshot() as snapshot:
                next_us = entries.next_due(snapshot.connection, self._schemes)
                now = moment_us(snapshot.connection, self._clock)
        except Exception as error:
            _log.debug("alerts: nobody can tell what is due: %s", error)
            return longest
        return longest if next_us is None else min((next_us - now) / 1e6, longest)

    def _try(self, store: Store, place: tuple[str, str, int]) -> bool:
        """Claims an entry, sends it, and writes how it went. True if it was sent."""
        self._is_sending = True
        try:
            with store.transaction(None) as tx:
                claimed = entries.claim(tx.connection, place, self._holder, self._now(), int(self._timing.lease * 1e6))
            if claimed is None:
                return False
            with self._holding(store, claimed):
                try:
                    note = self._send(store, claimed)
                except NotDelivered as error:
                    self._failed(store, claimed, error)
                    return False
                self._note(store, claimed, state="sent", sent_us=self._now(), next_us=None, error=note)
            return True
        finally:
            self._is_sending = False

    @contextmanager
    def _holding(self, store: Store, claimed: Claimed) -> Iterator[None]:
        """Renews the claim as long as it takes: nobody else sends a message that is under way."""
        is_done = threading.Event()

        def renew() -> None:
            while not is_done.wait(self._timing.lease / 4):
                try:
                    with store.transaction(None) as tx:
                        until_us = self._now() + int(self._timing.lease * 1e6)
                        entries.renew(tx.connection, claimed, self._holder, until_us)
                except Exception as error:  # Nobody else can claim it either, while the database is away.
                    _log.debug("alerts: a claim could not be renewed: %s", error)

        thread = threading.Thread(target=renew, name="penstock-courier-claim", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_done.set()

    def _note(self, store: Store, claimed: Claimed, **values: Any) -> None:
        """Writes how it went, however long the database is away: what is not noted would be sent again."""
        until: float | None = None
        while True:
            try:
                with store.transaction(None) as tx:
                    entries.settle(tx.connection, claimed, self._holder, **values)
                return
            except PenstockError as error:
                if until is None and self._stopping.is_set():
                    until = time.monotonic() + self._timing.note
                if not error.is_retryable or (until is not None and time.monotonic() >= until):
                    raise
                time.sleep(self._timing.note_pause)

    def _send(self, store: Store, claimed: Claimed) -> str | None:
        try:
            receiver = parse_receiver(claimed.address)
            if receiver.kind == "web":
                post(
                    claimed.address,
                    claimed.entry,
                    timeout_seconds=self._timeout_seconds,
                    ca=self._settings.ca_path,
                )
                return None
            assert self._server is not None, "mails are claimed only where there is a mail server"
            sender = default_sender(self._settings)
            message = compose(claimed.entry, sender=sender, chart=chart_of(store, claimed.entry))
            return self._server.send(message, sender, receiver.addresses)
        except (NotDelivered, MemoryError):
            raise
        except ReceiverUnclear as error:
            reason = f"nobody can be told that way; expected {error.expected}"
            raise NotDelivered(claimed.entry.receiver, reason, is_retryable=False) from None
        except Exception as error:
            # Whatever is wrong with it will be wrong next time too, and others must not wait for it.
            reason = f"{type(error).__name__}: {error}"
            raise NotDelivered(claimed.entry.receiver, reason, is_retryable=False) from error

    def _failed(self, store: Store, claimed: Claimed, error: NotDelivered) -> None:
        entry = claimed.entry
        is_over = not error.is_retryable or claimed.claimed_us - claimed.first_us >= self._give_up_us
        values = (
            {"state": "failed", "next_us": None}
            if is_over
            else {"next_us": self._now() + int(pause_seconds(entry.attempts, self._timing.pauses) * 1e6)}
        )
        self._note(store, claimed, error=error.reason[:1000], **values)
        level = logging.ERROR if is_over else logging.WARNING
        name, what = f"{entry.pipeline}/{entry.alert}/{entry.number}", "failed" if is_over else "is tried again"
        _log.log(level, "alerts: %s to %s %s: %s", name, entry.receiver, what, error.reason)

    def _forget(self, store: Store) -> None:
        if time.monotonic() < self._forget_at:
            return
        self._forget_at = time.monotonic() + FORGET_SECONDS
        with store.transaction(None) as tx:
            entries.forget(tx.connection, self._now() - self._keep_us)

    def _now(self) -> entries.Moment:
        """By the database's clock, which all couriers have in common, unless a test has handed in another one."""
        return DATABASE_NOW_US if self._clock is None else self._clock()


@contextmanager
def delivering(
    specs: Iterable[AlertSpec], store: Store, settings: AlertsSettings, *, timing: Timing = TIMING
) -> Iterator[Callable[[], None]]:
    """A courier at work for a run; gives what wakes it. At the end the last messages get some seconds to go out.

    None is at work where no alert goes to a mail server or a web hook.
    """
    kinds = {parse_receiver(each).kind for spec in specs for each in spec.receivers}
    if not kinds & {"mail", "web"}:
        yield lambda: None
        return
    if "mail" in kinds and not settings.smtp:
        _log.warning("alerts: mails wait, for no mail server is named: set alerts.smtp, see docs/settings.md")
    courier = Courier(store, settings, timing=timing)
    courier.start()
    try:
        yield courier.wake
    except BaseException:
        courier.close()
        raise
    courier.close(grace_seconds=timing.grace)


def send_test(receiver: Receiver, settings: AlertsSettings) -> str | None:
    """Sends one test message, right here. NotDelivered says why not; what is returned is a note of the server's."""
    now = now_us()
    row = {"test": "this is a test", "number": 1}
    entry = Entry(
        pipeline="penstock", alert="test", number=1, view="test", receiver=receiver.shown,
        text="a test message: alerts come through", rows=[row], rows_total=1, clock_us=now, created_us=now,
        state="waiting", attempts=1, next_us=now, sent_us=None, error=None,
    )  # fmt: skip
    timeout_seconds = parse_duration(settings.timeout).total_seconds()
    if receiver.kind == "web":
        post(receiver.address, entry, timeout_seconds=timeout_seconds, ca=settings.ca_path)
        return None
    server = MailServer.of(settings)
    if receiver.kind == "topic" or server is None:
        todo = (
            "no mail server is named: set alerts.smtp, or PENSTOCK_ALERTS_SMTP"
            if receiver.kind == "mail"
            else f"topics need no test: runs write them as they write the log; see penstock consume {receiver.topic}"
        )
        raise NotDelivered(receiver.shown, todo, is_retryable=False)
    sender = default_sender(settings)
    return server.send(compose(entry, sender=sender), sender, receiver.addresses)


def pause_seconds(attempts: int, pauses: tuple[float, float] = TIMING.pauses) -> float:
    """How long to wait after so many attempts: twice as long each time, and not all at the same moment."""
    first, longest = pauses
    return min(first * 2.0 ** min(attempts - 1, 30), longest) * random.uniform(0.75, 1.25)
