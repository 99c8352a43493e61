"""The assignment of partitions is balanced, keeps what it can, and is the same everywhere."""

import itertools
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.consume.assignment import TopicPartition, assign


def partitions_of(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number, "1") for number in range(count)]


def loads(assigned: dict[TopicPartition, str], members: list[str]) -> list[int]:
    counted = Counter(assigned.values())
    return [counted[member] for member in members]


def test_a_key_reads_back() -> None:
    partition = TopicPartition("orders.eu-1", 12, "5f0c")
    assert partition.key == "orders.eu-1/12@5f0c"
    assert TopicPartition.from_key(partition.key) == partition
    assert str(partition) == "orders.eu-1/12"


def test_a_lone_member_gets_everything() -> None:
    orders = partitions_of("orders", 3)
    assert assign({"a": frozenset({"orders"})}, orders, {}) == dict.fromkeys(orders, "a")


def test_nobody_gets_what_nobody_wants() -> None:
    assert assign({"a": frozenset({"clicks"})}, partitions_of("orders", 3), {}) == {}
    assert assign({}, partitions_of("orders", 3), {}) == {}


def test_a_newcomer_gets_its_share_and_the_rest_stays() -> None:
    orders = partitions_of("orders", 7)
    wanted = {member: frozenset({"orders"}) for member in "abc"}
    before = assign({member: wanted[member] for member in "ab"}, orders, {})
    after = assign(wanted, orders, before)
    assert sorted(loads(after, ["a", "b", "c"])) == [2, 2, 3]
    assert sum(before[partition] != after[partition] for partition in orders) == 2


def test_a_topic_is_spread_over_the_members() -> None:
    both = partitions_of("clicks", 4) + partitions_of("orders", 4)
    assigned = assign({member: frozenset({"clicks", "orders"}) for member in "ab"}, both, {})
    assert Counter((partition.topic, member) for partition, member in assigned.items()) == {
        ("clicks", "a"): 2, ("clicks", "b"): 2, ("orders", "a"): 2, ("orders", "b"): 2,
    }  # fmt: skip


def test_a_chain_is_found_where_no_single_move_helps() -> None:
    clicks, orders = partitions_of("clicks", 3), partitions_of("orders", 2)
    wanted = {"a": frozenset({"clicks"}), "b": frozenset({"clicks", "orders"}), "c": frozenset({"orders"})}
    owners = dict.fromkeys(clicks, "a") | dict.fromkeys(orders, "b")
    assert loads(assign(wanted, clicks + orders, owners), ["a", "b", "c"]) in ([2, 2, 1], [2, 1, 2], [1, 2, 2])


def test_a_recreated_topic_is_another_one() -> None:
    before, after = TopicPartition("orders", 0, "1"), TopicPartition("orders", 0, "2")
    assert assign({"a": frozenset({"orders"})}, [after], {before: "b"}) == {after: "a"}


def test_a_thousand_partitions_are_shared_evenly() -> None:
    many = [partition for topic in range(100) for partition in partitions_of(f"t{topic}", 10)]
    wanted = {f"m{member:02d}": frozenset(f"t{topic}" for topic in range(100)) for member in range(20)}
    assert set(loads(assign(wanted, many, dict.fromkeys(many, "m07")), list(wanted))) == {50}


@pytest.mark.timing
def test_a_thousand_partitions_are_shared_within_two_seconds() -> None:
    before = time.process_time()
    test_a_thousand_partitions_are_shared_evenly()
    assert time.process_time() - before < 2


TOPICS = ["p", "q", "r"]
small = st.dictionaries(st.sampled_from("abc"), st.frozensets(st.sampled_from(TOPICS)), max_size=3)


@settings(max_examples=150)
@given(small, st.lists(st.integers(0, 2), min_size=3, max_size=3), st.data())
def test_no_other_assignment_is_better_balanced(
    wanted: dict[str, frozenset[str]], counts: list[int], data: st.DataObject
) -> None:
    partitions = [each for topic, count in zip(TOPICS, counts, strict=True) for each in partitions_of(topic, count)]
    owners = {each: data.draw(st.sampled_from("abcd"), label=str(each)) for each in partitions}
    assigned = assign(wanted, partitions, owners)
    takers = {each: [member for member in wanted if each.topic in wanted[member]] for each in partitions}
    wished = [each for each in partitions if takers[each]]
    assert set(assigned) == set(wished)
    assert all(assigned[each] in takers[each] for each in wished)
    best = min(
        sum(count**2 for count in Counter(choice).values())
        for choice in itertools.product(*(takers[each] for each in wished))
    )
    assert sum(count**2 for count in Counter(assigned.values()).values()) == best
    assert assign(wanted, partitions, assigned) == assigned, "what is balanced must not move"


@settings(max_examples=100)
@given(st.integers(0, 30), st.lists(st.sampled_from("abcdefg"), unique=True, min_size=1), st.data())
def test_equal_members_move_no_more_than_they_must(count: int, members: list[str], data: st.DataObject) -> None:
    partitions = partitions_of("orders", count)
    owners = {each: data.draw(st.sampled_from("abcdefghi")) for each in partitions}
    assigned = assign({member: frozenset({"orders"}) for member in members}, partitions, owners)
    after = loads(assigned, members)
    assert max(after) - min(after) <= 1
    # As many fuller shares as there are go to those who have the most: nobody could keep more.
    share, fuller = divmod(count, len(members))
    had = sorted((sum(owners[each] == member for each in partitions) for member in members), reverse=True)
    most_kept = sum(min(kept, share + (place < fuller)) for place, kept in enumerate(had))
    assert sum(assigned[each] == owners[each] for each in partitions) == most_kept
