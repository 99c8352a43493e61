"""What open dashboards cost the service: python -m tests.dashboard.load

A service in a process of its own, 50 events a second, and none, one and ten browsers with the page that has most to do.
For each: the part of a core that the service takes, and how long a row by its key takes meanwhile.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import httpx

from tests.dashboard.browser import browser, opened, settled
from tests.dashboard.shop import make_shop

SECONDS = 12.0


def cpu_seconds(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(pid: int, url: str) -> tuple[float, float, float]:
    """The part of a core, and the median and the slowest of a hundred questions."""
    began, used = time.monotonic(), cpu_seconds(pid)
    times = []
    with httpx.Client(base_url=url) as client:
        while time.monotonic() - began < SECONDS:
            start = time.monotonic()
            client.get("/views/by_product", params={"key": "tea"}).raise_for_status()
            times.append(time.monotonic() - start)
            time.sleep(0.1)
    times.sort()
    return (cpu_seconds(pid) - used) / (time.monotonic() - began), times[len(times) // 2], times[-1]


def main() -> None:
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        shop, is_over = make_shop(Path(place)), threading.Event()
        command = [sys.executable, "-m", "penstock.cli", "--log", shop.settings.log.url, "serve", "--port", "0",
                   "--views", shop.settings.views.url]  # fmt: skip
        process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=place))
        assert process.stdout is not None
        url = process.stdout.readline().split()[1].removesuffix("/dashboard")

        def go_on() -> None:
            while not is_over.wait(1.0):
                shop.orders(50)
                shop.step()

        going = threading.Thread(target=go_on)
        going.start()
        try:
            started = stack.enter_context(browser())
            for number, path in ((0, ""), (1, ""), (10, ""), (10, "/views/per_minute")):
                with ExitStack() as pages:
                    for _ in range(number):
                        settled(pages.enter_context(opened(started)).page, f"{url}/dashboard{path}")
                    time.sleep(3)
                    part, median, slowest = measured(process.pid, url)
                    times = f"row by key: median {median * 1000:.1f} ms, slowest {slowest * 1000:.0f} ms"
                    print(f"{number:2} open {path or '/':20} {part:6.1%} of a core; {times}", flush=True)
        finally:
            is_over.set()
            going.join()
            shop.close()
            process.terminate()


if __name__ == "__main__":
    main()
