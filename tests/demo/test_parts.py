"""What the demo is made of: how a signal ends it, its port, and what it reports of a part that failed."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from penstock.demo.ending import Ending
from penstock.demo.site import Site
from penstock.errors import DemoFailed


@pytest.fixture
def ending() -> Iterator[Ending]:
    """An `Ending` that handles the signals of this process."""
    before = {number: signal.getsignal(number) for number in Ending.NUMBERS}
    ending = Ending()
    ending.listen()
    yield ending
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_asks_and_the_second_ends(ending: Ending, number: signal.Signals) -> None:
    ending.check()
    os.kill(os.getpid(), number)
    assert ending.is_asked
    with pytest.raises(KeyboardInterrupt):
        ending.check()
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), number)


def test_the_service_takes_another_port_if_its_own_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, Site(tmp_path, "smtp://localhost") as site:
        address = site.serve(taken.getsockname()[1])
        assert httpx.get(f"{address}/health").status_code == 200
        assert httpx.URL(address).port != taken.getsockname()[1]


def test_a_part_that_ends_by_itself_is_named_with_what_it_said() -> None:
    error = DemoFailed("the stream", 1, "penstock: pipeline 'weblogs' is owned\n  by another run")
    assert "the stream ended by itself, with exit code 1" in str(error)
    assert "| penstock: pipeline 'weblogs' is owned" in str(error)
