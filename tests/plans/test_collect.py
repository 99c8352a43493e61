"""Tables come as they are computed, each to its place; what nobody wants any more is not begun."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

from penstock.plans import collect as collecting
from penstock.plans.collect import FrameFailed, begin, collect
from tests.eventually import LIMIT_SECONDS

pytestmark = pytest.mark.spark


class Frame:
    """Stands for a plan that only Spark can run: says when it begins, and ends when it may."""

    def __init__(self, number: int, *, is_free: bool = True, fails: bool = False) -> None:
        self.number = number
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.fails = fails
        if is_free:
            self.may_end.set()

    def ready(self) -> None:
        """It never is."""

    def by_spark(self) -> pa.Table:
        self.begun.set()
        assert self.may_end.wait(LIMIT_SECONDS)
        if self.fails:
            raise ValueError(self.number)
        return pa.table({"n": [self.number]})


def asked(*frames: Frame) -> Any:
    return list(frames)


def numbers(tables: Any) -> list[int]:
    return [table["n"][0].as_py() for table in tables]


def test_tables_come_in_the_order_in_which_they_were_asked_for() -> None:
    frames = [Frame(number) for number in range(30)]
    assert numbers(collect(asked(*frames))) == [*range(30)]
    with begin(asked(*frames)) as tables:
        assert numbers(tables[3:6]) == [3, 4, 5]
        assert numbers(tables) == [*range(30)]


def test_the_first_is_there_while_the_last_is_still_computed() -> None:
    first, last = Frame(1), Frame(2, is_free=False)
    with begin(asked(first, last)) as tables:
        assert numbers(tables[:1]) == [1]
        assert last.begun.wait(LIMIT_SECONDS)
        last.may_end.set()
        assert numbers(tables) == [1, 2]


def test_a_single_one_needs_no_other_thread() -> None:
    with begin(asked(Frame(7))) as tables:
        assert numbers(tables) == [7]
    assert collect([]) == []


def test_a_failure_is_told_where_its_table_is_taken_and_nowhere_else() -> None:
    frames = [Frame(0), Frame(1, fails=True), Frame(2)]
    with begin(asked(*frames)) as tables:
        assert numbers([tables[0], tables[2]]) == [0, 2]
        with pytest.raises(FrameFailed) as caught:
            _ = tables[1]
    assert caught.value.index == 1
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(FrameFailed):
        collect(asked(*frames))


def test_who_leaves_early_waits_for_what_runs_and_begins_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "_HELPERS", 0)
    running, never = Frame(0, is_free=False), Frame(1)
    left = threading.Event()

    def leave() -> None:
        with begin(asked(running, never)) as tables:
            collecting._compute(tables._claimed(1), tables._small)
            assert running.begun.wait(LIMIT_SECONDS)
        left.set()

    leaving = threading.Thread(target=leave)
    leaving.start()
    assert not left.wait(0.2)
    running.may_end.set()
    assert left.wait(LIMIT_SECONDS)
    leaving.join()
    assert not never.begun.is_set()


def test_a_fault_of_ours_is_raised_and_lets_nobody_wait() -> None:
    class Broken(Frame):
        def ready(self) -> None:
            raise AssertionError("ours")

    frames = [Broken(number) for number in range(4)]
    with pytest.raises((AssertionError, FrameFailed), match="ours"):
        collect(asked(*frames))


def test_a_job_that_cannot_be_begun_lets_nobody_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(collecting._jobs, "submit", full)
    with pytest.raises((RuntimeError, FrameFailed), match="can't start new thread"):
        collect(asked(*(Frame(number) for number in range(4))))
