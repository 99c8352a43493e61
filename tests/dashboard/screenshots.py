"""Pictures of every page, in both themes and on a phone: python -m tests.dashboard.screenshots DIR [URL]

Without a URL a small shop is made and served for it.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser

from tests.dashboard.browser import PHONE, WIDE, browser, opened, settled
from tests.dashboard.shop import make_shop

PAGES = {
    "overview": "", "pipeline": "/pipeline", "topics": "/topics", "topic": "/topics/orders", "views": "/views",
    "view": "/views/per_minute", "bars": "/views/by_product", "clocks": "/clocks", "runs": "/runs", "alerts": "/alerts",
    "alert": "/alerts/shop/many_orders/1",
}  # fmt: skip
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": WIDE, "color_scheme": "light"},
    "dark": {"viewport": WIDE, "color_scheme": "dark"},
    "phone": {"viewport": PHONE, "color_scheme": "light", "device_scale_factor": 2, "has_touch": True},
}


def take(started: Browser, url: str, folder: Path, pages: dict[str, str]) -> None:
    """Every page in every look, as NAME-LOOK.png."""
    for look, options in LOOKS.items():
        with opened(started, **options) as watched:
            for name, path in pages.items():
                settled(watched.page, f"{url}/dashboard{path}")
                watched.page.wait_for_timeout(1500)
                watched.page.screenshot(path=folder / f"{name}-{look}.png", full_page=True)
            for complaint in watched.complaints:
                print(f"{look}: {complaint}", file=sys.stderr)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with browser() as started, tempfile.TemporaryDirectory() as place:
        if len(sys.argv) > 2:
            take(started, sys.argv[2].rstrip("/"), folder, PAGES)
            return
        shop, is_over = make_shop(Path(place)), threading.Event()

        def go_on() -> None:
            shop.correct()
            while not is_over.wait(1.0):
                shop.orders(60)
                shop.step(behind=20)

        going = threading.Thread(target=go_on)
        going.start()
        try:
            with shop.serving() as url:
                take(started, url, folder, PAGES)
        finally:
            is_over.set()
            going.join()
            shop.close()


if __name__ == "__main__":
    main()
