"""What can go wrong around the HTTP service: how it is started, who may use it, and what is asked of it."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors.base import PenstockError, did_you_mean
from penstock.errors.log import RecordsRefused


class ServiceError(PenstockError):
    """Something about the HTTP service."""


class ServeRefused(ServiceError):
    """The service cannot be started like this: it would be open to others, or the address cannot be had."""

    def __init__(self, address: str, found: str, todo: str) -> None:
        self.address = address
        self.found = found
        super().__init__(f"serve: nothing is served on {address}\n  {found}\n  {todo}")


class TokensUnreadable(ServiceError):
    """The file of tokens cannot be read, or others on this machine could read it."""

    def __init__(self, path: str, found: str, todo: str) -> None:
        self.path = path
        self.found = found
        super().__init__(f"serve: the tokens in {path} cannot be used\n  {found}\n  {todo}")


class TokenTaken(ServiceError):
    """A token of that name is there already. Nothing was changed."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"serve: a token named {name!r} is there already; nothing was changed\n"
            f"  to give it another secret, take it away first: penstock token remove {name}"
        )


class UnknownToken(ServiceError):
    """No token has that name."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name = name
        self.known = tuple(known)
        there = f"known tokens: {', '.join(known)}" if known else "there are no tokens"
        super().__init__(f"serve: no token is named {name!r}\n  {there}{did_you_mean(name, known)}")


class RequestRefused(ServiceError):
    """A request that cannot be answered as it is. `status` is that of the answer."""

    def __init__(self, status: int, found: str, expected: str, *, is_retryable: bool = False) -> None:
        self.status = status
        self.found = found
        self.expected = expected
        self.is_retryable = is_retryable
        super().__init__(f"serve: {found}\n  {expected}")


class EventsRefused(RecordsRefused):
    """Events that do not fit the topic, the first of them with their index, column and reason. Nothing was stored."""

    def __init__(self, topic: str, rejected: Sequence[tuple[int, str | None, str]], *, is_complete: bool) -> None:
        """`is_complete` unless reading ended with these, and there may be more."""
        super().__init__(topic, len(rejected), *rejected[0], is_complete=is_complete)
        self.rejected = tuple(rejected)


class NoChangelog(ServiceError):
    """The view does not publish its changes."""

    def __init__(self, view: str) -> None:
        self.view = view
        super().__init__(
            f"serve: view {view!r} does not publish its changes\n"
            "  expected: a view whose changes go to a topic\n"
            f'  add changelog="{view}.changes" to its definition, @app.view(..., changelog="{view}.changes"), '
            "and run the pipeline again"
        )
