"""Ctrl-C and SIGTERM: asked once, a run ends cleanly; asked twice, at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from penstock.cli.signals import Signals, StoppedEarly


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_signal_asks_and_handlers_are_put_back(number: int) -> None:
    before = signal.getsignal(number)
    asked = []
    with Signals() as signals:
        signals.begun(lambda: asked.append(1))
        os.kill(os.getpid(), number)
        assert signals.is_asked
    assert asked == [1]
    assert signal.getsignal(number) is before


def test_signal_before_anything_has_begun_stops_at_once() -> None:
    with pytest.raises(StoppedEarly), Signals():
        os.kill(os.getpid(), signal.SIGTERM)


def test_second_signal_ends_the_process() -> None:
    code = (
        "import os, signal\n"
        "from penstock.cli.signals import Signals\n"
        "with Signals() as signals:\n"
        "    signals.begun(lambda: print('asked', flush=True))\n"
        "    for _ in range(2): os.kill(os.getpid(), signal.SIGINT)\n"
        "    print('never')\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (130, "asked\n")
