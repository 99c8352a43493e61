"""The rules of a consumer group: who owns what, who may commit, who is out."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from penstock.consume.assignment import TopicPartition
from penstock.consume.group import Group
from penstock.consume.membership import Membership
from penstock.consume.seat import Seat
from penstock.errors import CorruptionError, GroupActive, GroupNameError, MemberEvicted

TIMEOUT = 10.0


class World:
    """A folder, a clock, and topics that are only names."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = 1000.0
        self.topics = {"orders": (4, "1")}
        self.seats: list[Seat] = []

    def find(self, subscriptions: tuple[str, ...]) -> frozenset[TopicPartition]:
        return frozenset(
            TopicPartition(topic, number, topic_id)
            for topic, (count, topic_id) in self.topics.items()
            for number in range(count)
            if any(fnmatchcase(topic, each) for each in subscriptions)
        )

    def group(self, name: str = "g") -> Group:
        return Group(self.root, name, self.find, monotonic=lambda: self.now)

    def join(self, *topics: str) -> Seat:
        seat = Seat(self.group(), topics or ("orders",), session_timeout=TIMEOUT)
        self.seats.append(seat)
        return seat

    def pass_time(self, seconds: float, *living: Seat) -> None:
        """Time goes by, and these members give their signs of life."""
        for _ in range(8):
            self.now += seconds / 8
            for seat in living:
                seat.confirm()

    def orders(self, *numbers: int) -> set[TopicPartition]:
        return {TopicPartition("orders", number, self.topics["orders"][1]) for number in numbers}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    for seat in made.seats:
        seat.abandon()


def owned(seat: Seat) -> set[TopicPartition]:
    return set(seat.look().owned_by(seat.id))


def at_zero(_: TopicPartition) -> int:
    return 0


def test_nothing_is_written_before_somebody_joins(world: World) -> None:
    group = world.group()
    assert (group.exists(), group.membership(), group.committed()) == (False, Membership(), {})
    assert list(world.root.iterdir()) == []


@pytest.mark.parametrize("name", ["", "Upper", "a/b", "../a", ".a", "a" * 129, "a b"])
def test_a_bad_name_is_refused(world: World, name: str) -> None:
    with pytest.raises(GroupNameError) as caught:
        world.group(name)
    assert caught.value.name == name


def test_a_lone_member_takes_everything(world: World) -> None:
    seat = world.join()
    seat.reconcile()
    assert owned(seat) == world.orders(0, 1, 2, 3)


def test_a_partition_moves_only_after_its_owner_gave_it_up(world: World) -> None:
    first = world.join()
    first.reconcile()
    second = world.join()
    second.reconcile()
    assert (owned(first), owned(second)) == (world.orders(0, 1, 2, 3), set())
    wanted = {key for key, member in first.look().assignment.items() if member == second.id}
    assert len(wanted) == 2
    first.reconcile(given_up=list(wanted)[:1])
    second.reconcile()
    assert owned(second) == set(list(wanted)[:1])
    first.reconcile(given_up=world.orders(0, 1, 2, 3))
    second.reconcile()
    assert owned(second) == wanted
    assert owned(first) == world.orders(0, 1, 2, 3) - wanted, "what it is meant to keep is not given up"


def test_balance_is_kept_by_whoever_looks(world: World) -> None:
    seats = [world.join() for _ in range(3)]
    for _ in range(3):
        for seat in seats:
            seat.reconcile(given_up=owned(seat))
    assert sorted(len(owned(seat)) for seat in seats) == [1, 1, 2]
    generation = seats[0].look().generation
    for seat in seats:
        seat.reconcile(given_up=owned(seat))
    assert seats[0].look().generation == generation, "a settled group stays as it is"


def test_the_partitions_of_a_dead_member_are_taken_at_once(world: World) -> None:
    first, second = world.join(), world.join()
    first.reconcile()
    first.abandon()
    assert list(second.suspects()) == [first.id]
    _, evicted = second.reconcile()
    assert "is gone" in evicted[first.id]
    assert owned(second) == world.orders(0, 1, 2, 3)
    assert not world.group().member_path(first.id).exists()


def test_a_frozen_member_is_out_after_its_session_timeout_and_not_before(world: World) -> None:
    first, second = world.join(), world.join()
    first.reconcile()
    world.pass_time(TIMEOUT - 0.1, second)
    assert second.suspects() == {}
    assert second.quiet_for() == pytest.approx(0.1, abs=0.001)
    world.pass_time(0.2, second)
    assert "no sign of life" in second.suspects()[first.id]
    second.reconcile()
    assert owned(second) == world.orders(0, 1, 2, 3)
    for attempt in (first.look, first.confirm, first.reconcile):
        with pytest.raises(MemberEvicted) as caught:
            attempt()
    assert (caught.value.group, caught.value.member, caught.value.is_retryable) == ("g", first.id, True)


def test_who_stood_still_itself_does_not_judge_others_at_once(world: World) -> None:
    first, second = world.join(), world.join()
    world.now += 100 * TIMEOUT  # The whole machine slept.
    second.confirm()
    assert second.suspects() == {}
    second.reconcile()
    first.confirm()
    world.pass_time(TIMEOUT + 0.1, second)
    assert list(second.suspects()) == [first.id]


def test_nobody_but_the_owner_can_commit(world: World) -> None:
    first = world.join()
    first.reconcile()
    first.begin(owned(first), at_zero)
    first.commit(dict.fromkeys(world.orders(0, 1), 5))
    second = world.join()
    first.abandon()
    second.reconcile()
    assert second.begin(owned(second), at_zero) == {
        **dict.fromkeys(world.orders(0, 1), 5), **dict.fromkeys(world.orders(2, 3), 0),
    }  # fmt: skip
    with pytest.raises(MemberEvicted) as caught:
        first.commit(dict.fromkeys(world.orders(0), 9))
    assert caught.value.lost == ("orders/0",)
    assert {key: each.offset for key, each in world.group().committed().items()}[next(iter(world.orders(0)))] == 5


def test_a_frozen_member_that_comes_back_while_it_begins_changes_nothing(world: World) -> None:
    first = world.join()
    first.reconcile()
    second = world.join()

    def freeze(_: TopicPartition) -> int:
        if not first_look:
            first_look.append(1)
            world.pass_time(TIMEOUT + 1, second)
            second.reconcile()
            second.begin(owned(second), lambda _: 7)
            second.commit(dict.fromkeys(world.orders(0), 8))
        return 100

    first_look: list[int] = []
    with pytest.raises(MemberEvicted):
        first.begin(world.orders(0, 1, 2, 3), freeze)
    assert sorted(each.offset for each in world.group().committed().values()) == [7, 7, 7, 8]
    assert {each.member for each in world.group().committed().values()} == {second.id}


def test_the_start_is_decided_once_for_the_group(world: World) -> None:
    first = world.join()
    first.reconcile()
    assert first.begin(world.orders(0), lambda _: 42) == dict.fromkeys(world.orders(0), 42)
    first.abandon()
    second = world.join()
    second.reconcile()
    assert second.begin(world.orders(0), lambda _: 99) == dict.fromkeys(world.orders(0), 42)


def test_a_recreated_topic_starts_afresh(world: World) -> None:
    seat = world.join()
    seat.reconcile()
    seat.begin(owned(seat), at_zero)
    seat.commit(dict.fromkeys(owned(seat), 1000))
    before = world.orders(0, 1, 2, 3)
    world.topics["orders"] = (2, "2")
    seat.reconcile(given_up=before)
    assert owned(seat) == world.orders(0, 1)
    assert seat.begin(owned(seat), lambda _: 3) == dict.fromkeys(world.orders(0, 1), 3)
    assert set(world.group().committed()) == world.orders(0, 1)


def test_members_with_different_subscriptions_share_what_they_have_in_common(world: World) -> None:
    world.topics = {"orders": (2, "1"), "clicks": (2, "2")}
    first, second = world.join("orders", "clicks"), world.join("click*")
    for _ in range(2):
        first.reconcile(given_up=owned(first))
        second.reconcile(given_up=owned(second))
    assert {key.topic for key in owned(first)} == {"orders"}
    assert {key.topic for key in owned(second)} == {"clicks"}


def test_leaving_frees_everything_and_leaves_nothing_behind(world: World) -> None:
    first, second = world.join(), world.join()
    first.reconcile()
    first.leave()
    first.leave()
    second.reconcile()
    assert owned(second) == world.orders(0, 1, 2, 3)
    assert [path.name for path in world.group().members_directory.glob("*.member")] == [f"{second.id}.member"]


def test_files_of_the_dead_are_swept_by_the_next_who_joins(world: World) -> None:
    seat = world.join()
    orphan = world.group().members_directory / "vm-1-dead.member"
    orphan.write_bytes(b"")
    world.join()
    assert not orphan.exists()
    assert world.group().member_path(seat.id).exists()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
def test_a_disk_that_fails_leaves_no_member_file_open(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who holds its file counts as alive, and a file system with an open file cannot be unmounted."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    kept = world.join()
    for place, name in ((os, "pwrite"), (os, "fstat"), (Group, "change"), (Path, "unlink")):
        before = open_files(world.root)
        with monkeypatch.context() as patch:
            patch.setattr(place, name, fail)
            with pytest.raises(OSError, match="Input/output error"):
                world.join().leave()
        assert open_files(world.root) == before, name
    with monkeypatch.context() as patch:
        patch.setattr(Group, "change", fail)
        patch.setattr(Path, "unlink", fail)
        with pytest.raises(OSError, match="Input/output error"):
            kept.leave()
    assert open_files(world.root) == []


def open_files(root: Path) -> list[str]:
    """Files below that this process has open."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(os.readlink(link))
    return sorted(path for path in found if path.startswith(str(root)))


def test_commits_do_not_touch_the_folder_that_wakes_members(world: World) -> None:
    seat = world.join()
    seat.reconcile()
    seat.begin(owned(seat), at_zero)
    before = os.stat(world.group().members_directory).st_mtime_ns
    seat.commit(dict.fromkeys(owned(seat), 1))
    assert os.stat(world.group().members_directory).st_mtime_ns == before


def test_a_group_at_work_cannot_be_reset(world: World) -> None:
    seat = world.join()
    with pytest.raises(GroupActive) as caught:
        world.group().reset(dict.fromkeys(world.orders(0), 1))
    assert caught.value.members == (seat.id,)
    with pytest.raises(GroupActive):
        world.group().forget()
    seat.abandon()
    world.group().reset(dict.fromkeys(world.orders(0), 7))
    again = world.join()
    again.reconcile()
    assert again.begin(world.orders(0), at_zero) == dict.fromkeys(world.orders(0), 7)
    again.leave()
    world.group().forget()
    assert world.group().committed() == {}


@pytest.mark.parametrize("kind", ["members", "offsets"])
def test_a_damaged_document_stops_the_group_with_its_name(world: World, kind: str) -> None:
    seat = world.join()
    seat.reconcile()
    seat.begin(owned(seat), at_zero)
    (path,) = (world.group().directory / kind).glob(f"{kind}-*.json")
    path.write_bytes(path.read_bytes().replace(b"orders/0", b"orders/1", 1))
    with pytest.raises(CorruptionError) as caught:
        (world.group().membership if kind == "members" else world.group().committed)()
    assert caught.value.path == path


def test_a_membership_reads_back_as_it_was_written(world: World) -> None:
    seat = world.join("orders", "o*")
    membership, _ = seat.reconcile()
    assert Membership.from_document(membership.to_document()) == membership
    assert membership.members[seat.id].subscriptions == ("o*", "orders")
    assert membership.members[seat.id].pid == os.getpid()
