"""Take first screens: ``python docs/_ext/pictures.py [NAME...]`` writes ``docs/pictures/report-*.png`` of reports.

Needs Chromium and Playwright (``pip install perfmodel[dev]``).
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import perfmodel

PICTURES = Path(__file__).parents[1] / "pictures"
NAMES = ("ship", "dataflow", "tco", "size", "agents")
#: Width and height of a screen [px], by what it is called.
SCREENS = {"": (1280, 800), "-phone": (390, 844)}


def take(pages: dict[str, Path], into: Path = PICTURES) -> list[Path]:
    """Return the pictures of pages, by name, once their first charts are drawn."""
    from playwright.sync_api import sync_playwright

    taken = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, page in pages.items():
            for screen, (width, height) in SCREENS.items():
                tab = browser.new_page(viewport={"width": width, "height": height})
                tab.goto(page.as_uri())
                tab.wait_for_selector(".opening svg")
                taken.append(into / f"report-{name}{screen}.png")
                tab.screenshot(path=taken[-1])
                tab.close()
        browser.close()
    return taken


def main(names: list[str]) -> None:
    """Build the reports that are named, all of them where none is, and take their first screens."""
    with tempfile.TemporaryDirectory() as folder:
        pages = {name: perfmodel.report(name, Path(folder)) for name in names or NAMES}
        for picture in take(pages):
            print(picture)


if __name__ == "__main__":
    main(sys.argv[1:])
