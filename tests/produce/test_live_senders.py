from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import (
    ForkedHandle,
)
from penstock.log.folder_log import FolderLog
from penstock.log.folder_topic import FolderTopic
from tests.eventually import eventually
from tests.produce.producing import held, new_topic, sender_threads, stored


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FolderLog]:
    with FolderLog(tmp_path / "log", background=False) as opened:
        yield opened


@pytest.fixture
def topic(log: FolderLog) -> FolderTopic:
    return new_topic(log)


def test_an_abandoned_producer_still_delivers_and_ends(topic: FolderTopic) -> None:
    before = sender_threads()
    producer = topic.producer(linger="1h")
    ack = producer.send({"n": 1})
    del producer
    gc.collect()
    assert ack.wait().stored == 1
    eventually(lambda: sender_threads() <= before)


SCRIPT = """
import multiprocessing, sys
from penstock.produce import live_senders
from penstock.log.folder_log import FolderLog

def send():
    global producer
    producer = FolderLog(sys.argv[1], background=False).producer("events", linger="1h")
    for n in range(100):
        producer.send({"n": n})

if __name__ == "__main__":
    live_senders.EXIT_SECONDS = 0.3 if sys.argv[2] == "stuck" else 3600
    if sys.argv[2] == "spawn":
        child = multiprocessing.get_context("spawn").Process(target=send)
        child.start(); child.join()
    else:
        send()
    if sys.argv[2] == "raise":
        raise SystemExit(3)
"""


def run_script(tmp_path: Path, log: FolderLog, how: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(log.root), how]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("how", ["plain", "raise", "spawn"])
def test_a_program_that_forgets_to_close_loses_nothing(
    tmp_path: Path, log: FolderLog, topic: FolderTopic, how: str
) -> None:
    run = run_script(tmp_path, log, how)
    assert (run.returncode, run.stderr) == (3 if how == "raise" else 0, "")
    assert stored(topic) == list(range(100))


def test_a_program_ends_in_time_and_tells_what_it_could_not_store(
    tmp_path: Path, log: FolderLog, topic: FolderTopic
) -> None:
    topic.append(pa.table([["ann"], [1], [None]], schema=topic.schema))
    with held(topic):
        run = run_script(tmp_path, log, "stuck")
    assert run.returncode == 0
    assert "was not acknowledged within 0.3 s" in run.stderr


def test_a_forked_child_is_refused_and_does_not_hang(topic: FolderTopic) -> None:
    producer = topic.producer(linger="1h")
    ack = producer.send({"n": 1})
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(120)
            for attempt in (lambda: producer.send({"n": 2}), ack.wait, lambda: producer.send([{"n": 2}])):
                with pytest.raises(ForkedHandle):
                    attempt()
            producer.flush()
            producer.close()
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    producer.close()
    assert stored(topic) == [1]
