"""What can go wrong while events are brought to the log."""

from __future__ import annotations

from pathlib import Path

from penstock.errors.base import PenstockError


class ProducerError(PenstockError):
    """Something is wrong with one producer."""


class ProducerSettingError(ProducerError):
    """A setting that no producer can have."""

    def __init__(self, topic: str, setting: str, expected: str, found: object) -> None:
        self.topic = topic
        self.setting = setting
        self.expected = expected
        self.found = found
        super().__init__(
            f"producer of {topic!r}: {setting} cannot be {found!r}\n  expected: {expected}\n  nothing was sent"
        )


class ProducerClosed(ProducerError):
    """The producer was closed before this was sent."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(
            f"producer of {topic!r} is closed\n  what was sent before is on disk; this was not sent\n"
            "  make a new producer, or send before the end of the with-block"
        )


class NotAnEvent(ProducerError):
    """What was given cannot be sent: it is not an event, nor many of them."""

    def __init__(self, topic: str, found: object) -> None:
        self.topic = topic
        self.found_type = type(found).__name__
        hint = {
            "str": "a text of JSON lines is sent as bytes: text.encode()",
            "generator": "take some of it at a time: list(itertools.islice(events, 10_000))",
        }.get(self.found_type, "wrap what you have in a dict whose names are the topic's columns")
        super().__init__(
            f"producer of {topic!r} cannot send a {self.found_type}\n"
            "  expected: a dict, a list of dicts, an Arrow table or batch, a pandas DataFrame, or bytes of JSON lines\n"
            f"  nothing was sent; {hint}"
        )


class SequenceRefused(ProducerError):
    """A sequence is missing, not wanted, or not greater than the one before. Taken as a retry, it would be lost."""

    def __init__(self, topic: str, name: str | None, expected: str, found: object) -> None:
        self.topic = topic
        self.name = name
        self.expected = expected
        self.found = found
        who = f"producer {name!r} of {topic!r}" if name is not None else f"producer of {topic!r} without a name"
        super().__init__(
            f"{who} cannot send with sequence={found!r}\n  expected: {expected}\n"
            "  nothing was sent; to send something again, make a new producer of the same name"
        )


class NotAcknowledged(ProducerError, TimeoutError):
    """The time ran out before the answer came. What was sent is still under way, not lost."""

    is_retryable = True

    def __init__(self, what: str, timeout: float, waiting: int | None = None) -> None:
        self.what = what
        self.timeout = timeout
        self.waiting = waiting
        many = f" ({waiting} batches are waiting)" if waiting is not None else ""
        super().__init__(
            f"producer: {what} was not acknowledged within {timeout:.3g} s{many}\n"
            "  it is still under way and may yet be stored; wait again, and look at the disk and at who holds the log"
        )


class SpillDamaged(ProducerError):
    """Events that waited on disk for their turn cannot be read back. They were never acknowledged."""

    def __init__(self, path: Path, position: int, found: str) -> None:
        self.path = path
        self.position = position
        self.found = found
        super().__init__(
            f"producer: spilled events are damaged at byte {position}: {found}\n  file: {path}\n"
            "  they were not acknowledged and must be sent again; look at the health of the disk"
        )
