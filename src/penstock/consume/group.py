"""A consumer group on disk: who is in it, who reads what, and how far they are.

    <log>/groups/<group>/members/members-<version>.json    members, assignment, owners
                                /<member>.member           locked while its process lives; its last sign of life
                        /offsets/offsets-<version>.json    committed offsets

There is no coordinator. Every member looks after the group: it is woken by changes in `members/`, takes out who is
dead or frozen, shares the partitions out anew, gives up what it should not keep, and takes what is meant for it.
Commits wake nobody.
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.clock import Clock, now_us
from penstock.consume.assignment import TopicPartition
from penstock.consume.membership import FindPartitions, Member, Membership
from penstock.consume.versioned import Document, VersionedDocument
from penstock.errors import GroupActive, GroupNameError
from penstock.log.files import make_directory

MEMBER_SUFFIX = ".member"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
_HEARTBEAT = struct.Struct("<q")


@dataclass(frozen=True)
class Committed:
    """How far a group has come in one partition."""

    offset: int
    """The next offset to read: everything before it is processed."""
    committed_us: int
    member: str
    """Who may commit here: the member that took the partition last."""


Offsets = dict[TopicPartition, Committed]


class Group:
    """One consumer group of a log. Any number of processes may hold one; nothing is written before somebody joins."""

    def __init__(
        self,
        root: Path,
        name: str,
        find: FindPartitions,
        *,
        clock: Clock = now_us,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise GroupNameError(name)
        self.name = name
        self.directory = root / "groups" / name
        self.members_directory = self.directory / "members"
        self.find = find
        self.clock = clock
        self.monotonic = monotonic
        """One clock for all processes of the machine, which nobody sets: setting the wall clock evicts no member."""
        self._members = VersionedDocument(self.members_directory, "members", workshop=self.directory)
        self._offsets = VersionedDocument(self.directory / "offsets", "offsets", workshop=self.directory)
        self._known: tuple[int, Membership] = (0, Membership())

    # --- members ---

    def exists(self) -> bool:
        """Whether anybody ever joined."""
        return self.members_directory.is_dir()

    def membership(self) -> Membership:
        """Who is in the group as of now, with the dead that nobody has noticed yet. Cheap if nothing changed."""
        if not self.exists():
            return Membership()
        if self._members.version() != self._known[0]:
            version, document = self._members.read()
            self._known = (version, Membership.from_document(document))
        return self._known[1]

    def change(self, change: Callable[[Membership], Membership]) -> Membership:
        """Applies a change to the membership, on disk when it returns. See `VersionedDocument.update`."""

        def apply(document: Document) -> Document:
            before = Membership.from_document(document)
            after = change(before)
            return document if after is before else after.to_document()

        make_directory(self.members_directory)
        return Membership.from_document(self._members.update(apply)[1])

    def dead(self, membership: Membership, *, is_patient: bool = False) -> dict[str, str]:
        """The members whose process is gone or, unless patient, frozen beyond its session timeout; and how we know."""
        found = {}
        for member in membership.members.values():
            why = self._why_gone(member) or (None if is_patient else self._why_frozen(member))
            if why is not None:
                found[member.id] = why
        return found

    def expires_in(self, membership: Membership, *, apart_from: str) -> float:
        """Seconds until the first other member would count as frozen, if none gave a sign of life from now on."""
        now = self.monotonic()
        return min(
            (
                (self.heartbeat(member.id) or now) + member.session_timeout_us / 1e6 - now
                for member in membership.members.values()
                if member.id != apart_from
            ),
            default=float("inf"),
        )

    def heartbeat(self, member: str) -> float | None:
        """When the member last gave a sign of life, in seconds of the monotonic clock."""
        try:
            content = self.member_path(member).read_bytes()
        except FileNotFoundError:
            return None
        return float(_HEARTBEAT.unpack(content)[0] / 1e9) if len(content) == _HEARTBEAT.size else None

    def beat(self, fd: int) -> None:
        """Writes a sign of life into the file of a member."""
        os.pwrite(fd, _HEARTBEAT.pack(int(self.monotonic() * 1e9)), 0)

    def member_path(self, member: str) -> Path:
        """The file whose lock its living process holds."""
        return self.members_directory / (member + MEMBER_SUFFIX)

    def sweep(self) -> None:
        """Deletes what dead processes left behind."""
        self._members.sweep()
        self._offsets.sweep()
        members = self.membership().members
        for path in self.members_directory.glob("*" + MEMBER_SUFFIX):
            if path.stem not in members:
                with suppress(FileNotFoundError), open(path, "rb") as file, suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()

    # --- offsets ---

    def committed(self) -> Offsets:
        """Every committed offset."""
        return _to_offsets(self._offsets.read()[1]) if self._offsets.directory.is_dir() else {}

    def change_offsets(self, change: Callable[[Offsets], Offsets]) -> Offsets:
        """Applies a change to the committed offsets, on disk when it returns. See `VersionedDocument.update`."""

        def apply(document: Document) -> Document:
            before = _to_offsets(document)
            after = change(before)
            return document if after is before else _to_document(after)

        make_directory(self._offsets.directory)
        return _to_offsets(self._offsets.update(apply)[1])

    def reset(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Sets committed offsets from outside. GroupActive while the group has living members."""
        self._refuse_if_active()
        make_directory(self.members_directory)
        moved = {key: Committed(offset, self.clock(), "") for key, offset in offsets.items()}
        self.change_offsets(lambda known: {**known, **moved})

    def forget(self) -> None:
        """Deletes all committed offsets: the group begins anew. GroupActive while it has living members."""
        self._refuse_if_active()
        self.change_offsets(lambda known: {} if known else known)

    # --- inside ---

    def _why_gone(self, member: Member) -> str | None:
        try:
            fd = os.open(self.member_path(member.id), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return "it left without a word"
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        finally:
            os.close(fd)
        return f"its process {member.pid} on {member.host} is gone"

    def _why_frozen(self, member: Member) -> str | None:
        heartbeat = self.heartbeat(member.id)
        silent = 0.0 if heartbeat is None else self.monotonic() - heartbeat
        timeout = member.session_timeout_us / 1e6
        return f"it gave no sign of life for {silent:.1f} s, more than {timeout:g} s" if silent > timeout else None

    def _refuse_if_active(self) -> None:
        membership = self.membership()
        living = membership.members.keys() - self.dead(membership).keys()
        if living:
            raise GroupActive(self.name, sorted(living))


def _to_offsets(document: Document) -> Offsets:
    return {TopicPartition.from_key(key): Committed(*fields) for key, fields in document.items()}


def _to_document(offsets: Offsets) -> Document:
    return {key.key: [each.offset, each.committed_us, each.member] for key, each in offsets.items()}
