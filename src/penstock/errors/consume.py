"""What can go wrong for a consumer or its group."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors.base import PenstockError, did_you_mean


class GroupError(PenstockError):
    """Something is wrong with a consumer or its group."""


class GroupNameError(GroupError):
    """The name is not allowed."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"consumer: {name!r} cannot name a group\n"
            "  expected: a-z, 0-9, '.', '_' and '-', beginning with a letter or digit, at most 128 characters"
        )


class UnknownGroup(GroupError):
    """Nothing has that name."""

    def __init__(self, name: str, known: Sequence[str], log: str) -> None:
        self.name = name
        self.known = tuple(known)
        super().__init__(
            f"consumer: no group is named {name!r} in {log}\n"
            f"  known groups: {', '.join(known) or 'none yet'}{did_you_mean(name, known)}\n"
            "  a group is made by its first consumer"
        )


class GroupActive(GroupError):
    """The group has living members: what is changed under their feet they would overwrite with their next commit."""

    is_retryable = True

    def __init__(self, group: str, members: Sequence[str]) -> None:
        self.group = group
        self.members = tuple(members)
        super().__init__(
            f"consumer: group {group!r} cannot be changed while it is at work\n"
            f"  living members: {', '.join(members)}\n"
            "  nothing was changed; stop them first, or let a member seek"
        )


class NoGroup(GroupError):
    """A consumer without a group reads everything, and keeps no progress."""

    def __init__(self, topics: Sequence[str]) -> None:
        self.topics = tuple(topics)
        names = ", ".join(map(repr, topics))
        super().__init__(
            f"consumer: there is nothing to commit to; the consumer of {names} has no group\n"
            f"  give it one: log.consumer({names}, group='...')"
        )


class MemberEvicted(GroupError):
    """This consumer lost its partitions to others of its group. `poll` joins again; what was not committed comes again.

    Raised by `commit` until then, so that nobody takes records for committed that others get again.
    """

    is_retryable = True

    def __init__(self, group: str, member: str, why: str, lost: Sequence[str] = ()) -> None:
        self.group = group
        self.member = member
        self.why = why
        self.lost = tuple(lost)
        self.fields = (group, member, why, self.lost)
        partitions = f"; others may have taken over {', '.join(lost)}" if lost else ""
        super().__init__(
            f"consumer: {member} is no longer a member of group {group!r}: {why}\n"
            f"  nothing was committed{partitions}\n"
            "  what was polled since the last commit is delivered again; poll() joins the group again"
        )


class NotAssigned(GroupError):
    """The partition is not this consumer's at the moment."""

    def __init__(self, place: str, assigned: Sequence[str]) -> None:
        self.place = place
        self.assigned = tuple(assigned)
        super().__init__(
            f"consumer: {place} is not assigned to this consumer\n"
            f"  assigned: {', '.join(assigned) or 'nothing yet; poll() once first'}\n"
            "  another member of its group may have it; let that one seek, or stop the group and reset it"
        )


class StartError(GroupError):
    """A place to start reading that cannot be understood."""

    def __init__(self, found: object) -> None:
        self.found = found
        super().__init__(
            f"consumer: cannot start at {found!r}\n"
            "  expected: 'earliest', 'latest', an offset such as 4711, or a time such as '2026-01-31T12:00:00Z'"
        )


class ConsumerOptionError(GroupError):
    """An option that a consumer cannot have."""

    def __init__(self, option: str, expected: str, found: object) -> None:
        self.option = option
        self.expected = expected
        self.found = found
        super().__init__(f"consumer: cannot be made with {option} = {found!r}\n  expected: {expected}")


class ConsumerClosed(GroupError):
    """The consumer was closed before."""

    def __init__(self, topics: Sequence[str]) -> None:
        self.topics = tuple(topics)
        super().__init__(
            f"consumer: the consumer of {', '.join(map(repr, topics))} is closed\n  make a new one to read on"
        )
