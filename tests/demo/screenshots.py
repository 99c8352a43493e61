"""The pictures in docs/images, taken of the running demo: python -m tests.demo.screenshots docs/images

Each page once, in light; the overview in dark and a view on a phone as well. It takes about two minutes.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

from tests.dashboard.browser import PHONE, WIDE, browser, opened, settled
from tests.demo.test_demo import FILL_SECONDS, address, started
from tests.eventually import eventually

LIGHT: dict[str, Any] = {"viewport": WIDE, "color_scheme": "light"}
DARK = {**LIGHT, "color_scheme": "dark"}
ON_A_PHONE = {"viewport": PHONE, "color_scheme": "light", "device_scale_factor": 2, "has_touch": True}
PICTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "overview": ("", LIGHT),
    "overview-dark": ("", DARK),
    "pipeline": ("/pipeline", LIGHT),
    "topics": ("/topics", LIGHT),
    "topic": ("/topics/access", LIGHT),
    "views": ("/views", LIGHT),
    "view": ("/views/traffic", LIGHT),
    "view-phone": ("/views/traffic", ON_A_PHONE),
    "clocks": ("/clocks", LIGHT),
    "runs": ("/runs", LIGHT),
    "alerts": ("/alerts", LIGHT),
    "alert": ("/alerts/weblogs/page_fails/1", LIGHT),
}
COLOURS = 128


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, browser() as chromium:
        process = started(Path(place) / "site", "--seconds", "0")
        try:
            url = address(process)
            with opened(chromium, **LIGHT) as watched:
                settled(watched.page, f"{url}/alerts")
                eventually(
                    lambda: watched.page.get_by_text("sent", exact=True).count() >= 3,
                    seconds=FILL_SECONDS,
                )
                watched.page.wait_for_timeout(30_000)  # So that the charts have something to show.
            for name, (path, options) in PICTURES.items():
                with opened(chromium, **options) as watched:
                    settled(watched.page, f"{url}{path}")
                    watched.page.wait_for_timeout(4000)
                    target = folder / f"{name}.png"
                    watched.page.screenshot(path=target)
                    Image.open(target).convert("RGB").quantize(COLOURS).save(target, optimize=True)
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate()


if __name__ == "__main__":
    main()
