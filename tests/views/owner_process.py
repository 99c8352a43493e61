"""A run in its own process, for tests that kill or freeze it: `python -m tests.views.owner_process URL PIPELINE`.

It obeys commands, one per line, and answers each with a line of JSON. Its clock moves only when told to.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, Engine, text

from penstock.errors import OwnershipLost, PipelineOwned
from penstock.testing import ManualClock
from penstock.views.owner import Owner, claim, own
from penstock.views.process import is_stopped
from penstock.views.store import open_store
from tests.eventually import eventually

LEASE = timedelta(hours=1)
"""Longer than any test: an owner renews its lease by itself only after a quarter of it."""


def engine_for(url: str) -> Engine:
    """The engine of a store. PostgreSQL leaves transactions alone that are idle for minutes."""
    return open_store(url, lease=LEASE).engine


def main() -> None:
    url, pipeline = sys.argv[1:]
    engine, clock = engine_for(url), ManualClock()
    owner: Owner | None = None
    connection: Connection | None = None

    def tell(**answer: Any) -> None:
        print(json.dumps(answer), flush=True)

    tell(is_ready=True)
    for line in sys.stdin:
        word, _, argument = line.strip().partition(" ")
        try:
            if word == "own":
                owner = own(engine, pipeline, lease=LEASE, clock=clock, on_wait=lambda words: None)
                tell(epoch=owner.epoch)
                continue
            assert owner is not None
            if word == "move":
                clock.move(timedelta(seconds=float(argument)))
            elif word == "begin":  # And stays inside, with something written.
                connection = engine.connect()
                connection.begin()
                claim(connection, owner)
                connection.execute(text("UPDATE total SET n = n + :n"), {"n": int(argument)})
            elif word == "commit":
                assert connection is not None
                connection.commit()
                connection.close()
            elif word == "step":
                with engine.begin() as each:
                    claim(each, owner)
                    each.execute(text("UPDATE total SET n = n + :n"), {"n": int(argument)})
            elif word == "release":
                owner.release()
            tell(is_lost=owner.is_lost)
        except PipelineOwned as error:
            tell(owned_by=error.pid)
        except OwnershipLost as error:
            tell(lost_to=error.pid)
        except Exception as error:
            tell(error=str(error))


class OwnerProcess:
    """The process as its test sees it. It is ready once the `with` is entered."""

    def __init__(self, url: str, pipeline: str = "shop") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.views.owner_process", url, pipeline],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    def say(self, words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(words + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def ask(self, words: str) -> dict[str, Any]:
        self.say(words)
        return self.answer()

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        eventually(lambda: is_stopped(self.pid))

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill it without reaping it: it stays in the process table as a zombie."""
        os.kill(self.pid, signal.SIGKILL)

    def __enter__(self) -> Self:
        assert self.answer() == {"is_ready": True}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()


if __name__ == "__main__":
    main()
