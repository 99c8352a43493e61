"""A sleeper wakes at once when something changes, and costs nothing until then."""

import multiprocessing
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.consume import wakeup
from penstock.consume.wakeup import Wakeup


@pytest.fixture(params=["kernel", "looking"])
def sleeper(request: pytest.FixtureRequest) -> Iterator[Wakeup]:
    with Wakeup(is_polling=request.param == "looking") as made:
        yield made


def soon(action: Callable[[], object], after: float = 0.1) -> None:
    timer = threading.Timer(after, action)
    timer.daemon = True
    timer.start()


def test_a_write_in_place_wakes(sleeper: Wakeup, tmp_path: Path) -> None:
    end = tmp_path / "end"
    end.write_bytes(b"a" * 80)
    fd = os.open(end, os.O_RDWR)
    sleeper.watch(end)
    soon(lambda: os.pwrite(fd, b"b" * 80, 0))
    assert sleeper.wait(None) == {end}
    assert sleeper.wait(0.05) == frozenset()
    os.close(fd)


def test_a_change_between_watch_and_wait_is_not_missed(sleeper: Wakeup, tmp_path: Path) -> None:
    end = tmp_path / "end"
    end.write_bytes(b"a")
    sleeper.watch(end)
    end.write_bytes(b"b")
    assert sleeper.wait(None) == {end}


@pytest.mark.parametrize(
    "change",
    [
        lambda directory: (directory / "new").mkdir(),
        lambda directory: (directory / "old").unlink(),
        lambda directory: (directory / "old").rename(directory / "renamed"),
        lambda directory: os.link(directory / "old", directory / "linked"),
    ],
    ids=["mkdir", "unlink", "rename", "link"],
)
def test_a_name_that_comes_or_goes_wakes(sleeper: Wakeup, tmp_path: Path, change: Callable[[Path], object]) -> None:
    (tmp_path / "old").write_bytes(b"")
    sleeper.watch(tmp_path)
    soon(lambda: change(tmp_path))
    assert sleeper.wait(None) == {tmp_path}


def test_another_thread_can_wake(sleeper: Wakeup, tmp_path: Path) -> None:
    sleeper.watch(tmp_path)
    soon(sleeper.notify)
    assert sleeper.wait(None) == frozenset()
    for _ in range(100_000):  # More than a pipe holds: the notifier never blocks.
        sleeper.notify()
    sleeper.wait(None)


def test_a_path_that_is_not_there_yet_wakes_when_it_comes(sleeper: Wakeup, tmp_path: Path) -> None:
    late = tmp_path / "late"
    sleeper.watch(late)
    assert sleeper.is_polling
    soon(lambda: late.write_bytes(b"here"))
    assert sleeper.wait(None) == {late}
    sleeper.wait(0)
    late.write_bytes(b"there")
    assert sleeper.wait(None) == {late}


def test_a_file_that_is_replaced_goes_on_being_watched(sleeper: Wakeup, tmp_path: Path) -> None:
    end = tmp_path / "end"
    end.write_bytes(b"one")
    holder = os.open(end, os.O_RDONLY)  # Held open, the old file does not go away with its name.
    sleeper.watch(end)
    end.unlink()
    assert sleeper.wait(None) == {end}
    end.write_bytes(b"two")
    assert sleeper.wait(None) == {end}
    while sleeper.wait(0.3):
        pass
    end.write_bytes(b"three")
    assert sleeper.wait(None) == {end}
    assert sleeper.watched == {end}
    os.close(holder)


def test_what_is_no_longer_watched_does_not_wake(sleeper: Wakeup, tmp_path: Path) -> None:
    end = tmp_path / "end"
    end.write_bytes(b"a")
    sleeper.watch(end)
    sleeper.unwatch(end)
    sleeper.wait(0)
    assert sleeper.watched == frozenset()
    end.write_bytes(b"b")
    assert sleeper.wait(0.1) == frozenset()


def test_an_overflow_counts_as_a_change_of_everything(tmp_path: Path) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    files = [tmp_path / name for name in ("a", "b", "c")]
    with Wakeup() as sleeper:
        for file in files:
            file.write_bytes(b"")
            sleeper.watch(file)
        fds = [os.open(file, os.O_RDWR) for file in files[:2]]
        for index in range(limit + 10):  # Two in turn: the kernel merges only events that are the same.
            os.pwrite(fds[index % 2], b"x", 0)
        assert sleeper.wait(None) == set(files)
        for fd in fds:
            os.close(fd)


def test_without_inotify_files_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class NoInotify:
        @staticmethod
        def inotify_init1(_: int) -> int:
            return -1

    monkeypatch.setattr(wakeup, "_libc", NoInotify)
    with Wakeup() as sleeper:
        sleeper.watch(tmp_path)
        assert sleeper.is_polling
        soon((tmp_path / "new").mkdir)
        assert sleeper.wait(None) == {tmp_path}
    assert "max_user_instances" in caplog.text


def test_the_death_of_a_process_that_held_a_file_wakes(tmp_path: Path) -> None:
    held = tmp_path / "held"
    holder = subprocess.Popen(
        [sys.executable, "-c", f"f = open({str(held)!r}, 'w'); print(flush=True); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout is not None
    holder.stdout.readline()
    with Wakeup() as sleeper:
        sleeper.watch(tmp_path)
        assert sleeper.wait(0.2) == frozenset()
        soon(lambda: os.kill(holder.pid, signal.SIGKILL))
        assert sleeper.wait(None) == {tmp_path}
    holder.communicate()


def _answer(ping: str, pong: str, rounds: int) -> None:
    with Wakeup() as sleeper:
        sleeper.watch(Path(ping))
        with open(pong, "r+b", buffering=0) as file:
            os.pwrite(file.fileno(), b"!", 0)
            for _ in range(rounds):
                sleeper.wait(None)
                os.pwrite(file.fileno(), b"!", 0)


def seconds_of_round_trips(tmp_path: Path, rounds: int) -> list[float]:
    """Two processes wake each other in turn. One wake-up that is missed, and they sleep for ever."""
    ping, pong = tmp_path / "ping", tmp_path / "pong"
    ping.write_bytes(b"")
    pong.write_bytes(b"")
    with Wakeup() as sleeper:
        sleeper.watch(pong)
        process = multiprocessing.get_context("spawn").Process(
            target=_answer, args=(str(ping), str(pong), rounds), daemon=True
        )
        process.start()
        sleeper.wait(None)
        times = []
        fd = os.open(ping, os.O_RDWR)
        for _ in range(rounds):
            before = time.monotonic()
            os.pwrite(fd, b"?", 0)
            sleeper.wait(None)
            times.append(time.monotonic() - before)
        os.close(fd)
        process.join()
    return times


def test_no_wake_up_between_two_processes_is_missed(tmp_path: Path) -> None:
    assert len(seconds_of_round_trips(tmp_path, 100)) == 100


@pytest.mark.timing
def test_a_wake_up_takes_a_few_milliseconds(tmp_path: Path) -> None:
    median = sorted(seconds_of_round_trips(tmp_path, 100))[50]
    assert median < 0.01, f"there and back took {median * 1000:.2f} ms"


def test_a_notification_never_reaches_a_file_that_took_the_place_of_a_closed_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sleeper = Wakeup()
    closing = threading.Thread(target=sleeper.close)
    real, written = os.write, []

    def write(fd: int, data: bytes) -> int:
        closing.start()
        closing.join(0.2)  # Ends now only if nothing keeps it from closing what is written to.
        written.append(real(fd, data))
        return written[-1]

    monkeypatch.setattr(os, "write", write)
    sleeper.notify()
    closing.join()
    assert written == [1]


def test_waiting_is_one_call_of_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[float | None] = []

    class Poller:
        def __init__(self, poller: select.poll) -> None:
            self.register = poller.register
            self._poller = poller

        def poll(self, timeout: float | None) -> list[tuple[int, int]]:
            calls.append(timeout)
            return self._poller.poll(timeout)

    real = select.poll
    monkeypatch.setattr(select, "poll", lambda: Poller(real()))
    with Wakeup() as sleeper:
        sleeper.watch(tmp_path)
        assert sleeper.wait(0.2) == frozenset()
    assert len(calls) == 1
