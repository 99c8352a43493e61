"""A run in a process of its own, for tests that kill or freeze it: `python -m tests.views.owner_process URL PIPELINE`.

It does what it is told, a word a line, and answers each word with a line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, Engine, text

from penstock.errors import OwnershipLost, PipelineOwned
from penstock.views.owner import Owner, claim, own
from penstock.views.store import open_store


def engine_for(url: str) -> Engine:
    """The engine of a store. PostgreSQL ends an idle transaction before a lease of one second is over."""
    return open_store(url, lease=timedelta(seconds=1)).engine


def main() -> None:
    url, pipeline, lease = sys.argv[1], sys.argv[2], timedelta(seconds=float(sys.argv[3]))
    engine = engine_for(url)
    owner: Owner | None = None
    connection: Connection | None = None

    def tell(**answer: Any) -> None:
        print(json.dumps(answer), flush=True)

    for line in sys.stdin:
        word, _, argument = line.strip().partition(" ")
        try:
            if word == "own":
                time.sleep(max(float(argument or 0) - time.time(), 0))
                owner = own(engine, pipeline, lease=lease, on_wait=lambda words: None)
                tell(epoch=owner.epoch)
                continue
            assert owner is not None
            if word == "begin":  # And stays inside, with something written.
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
    """The process as its test sees it."""

    def __init__(self, url: str, pipeline: str = "shop", *, lease: float = 60.0) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.views.owner_process", url, pipeline, str(lease)],
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

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Without reaping it: a dead process that nobody asked about yet is still listed."""
        os.kill(self.pid, signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()


if __name__ == "__main__":
    main()
