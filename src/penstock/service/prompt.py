"""The log, asked for a moment only: while brokers are away, what can be said without them is still said.

Kafka's client waits half a minute for an election before it gives up. That is right for reading records, and
wrong for a row of a view that only reports how far behind it is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from penstock.errors import KafkaUnavailable
from penstock.log.log import Log

T = TypeVar("T")
PROMPT_SECONDS = 1.0


class Prompt:
    """Asks a log that is not on this machine's disk, and waits no longer than a moment. Any thread may ask."""

    def __init__(self, log: Log) -> None:
        self._url = log.url
        self._is_elsewhere = not self._url.startswith("dir:")
        self._late: Future[object] | None = None
        """A question that was given up, and that the log has yet to answer."""

    def ask(self, body: Callable[[], T]) -> T:
        """What the body returns, or raises. KafkaUnavailable if that takes too long, or an earlier one still does."""
        if not self._is_elsewhere:
            return body()
        self.check()
        answer: Future[T] = Future()
        # A daemon: a late answer must not keep the process from ending.
        threading.Thread(target=_answer, args=(answer, body), name="penstock-prompt", daemon=True).start()
        try:
            return answer.result(PROMPT_SECONDS)
        except TimeoutError:
            if answer.done():
                return answer.result()
            self._late = answer  # type: ignore[assignment]
            raise self._unavailable() from None

    def check(self) -> None:
        """KafkaUnavailable while an earlier question waits for its answer."""
        if self._late is not None and not self._late.done():
            raise self._unavailable()

    def _unavailable(self) -> KafkaUnavailable:
        return KafkaUnavailable(self._url, f"no answer within {PROMPT_SECONDS:g} s")


def _answer(answer: Future[T], body: Callable[[], T]) -> None:
    try:
        answer.set_result(body())
    except BaseException as error:
        answer.set_exception(error)
