"""Takes the screenshots of README.md and docs/insights.md: python
benchmarks/insights_screenshots.py http://127.0.0.1:8008/

Start t2t-insights first, with --compare_with. It needs chromium and chromedriver, and pip install
".[benchmarks]".
"""

from __future__ import annotations

import base64
import io
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

FOLDER = Path(__file__).parents[1] / "docs" / "insights"
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run")
SOURCE = "Two men in red shirts are playing football on a green field."
IS_READY = """
const count = document.querySelectorAll(".side").length;
const isBusy = document.querySelector("[aria-busy=true]");
return count && document.querySelectorAll(".heatmap").length === count && !isBusy;
"""


class Screenshot(NamedTuple):
    """A picture of the page."""

    scheme: str
    """Color scheme, "light" or "dark"."""
    width: int
    """Width of the window in pixels."""
    link: dict[str, Any]
    """The permanent link."""
    focus: str = ""
    """Selector of the element that gets the focus."""
    first: str = ""
    """Selector of the first element in the picture. By default, the picture starts at the top of
    the page.
    """
    last: str = "footer"
    """Selector of the last element in the picture."""


SEARCH = Screenshot(
    "light",
    900,
    {"source": SOURCE, "compare": "", "step": 7},
    first=".card:has(.search)",
    last=".tree-box + *",
)
SCREENSHOTS = {
    "tree.png": SEARCH,
    "tree_dark.png": SEARCH._replace(scheme="dark"),
    "page.png": Screenshot(
        "light",
        1280,
        {"source": SOURCE, "compare": "", "kind": "cross", "layer": 2, "head": "mean"},
        ".word:nth-child(7)",
    ),
    "two_models.png": Screenshot(
        "dark",
        1280,
        {"source": SOURCE, "compare": 2, "step": 7, "step2": 7},
        last=".card:nth-child(4)",
    ),
}


def main(address: str) -> None:
    """Writes the screenshots of a server's page."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    with tempfile.TemporaryDirectory() as folder:
        for option in (*OPTIONS, f"--user-data-dir={folder}"):
            options.add_argument(option)
        driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        try:
            for name, screenshot in SCREENSHOTS.items():
                path = FOLDER / name
                path.write_bytes(take(driver, address, screenshot))
                print(f"{path}: written")
        finally:
            driver.quit()


def take(driver: Any, address: str, screenshot: Screenshot) -> bytes:
    """Returns a picture of the page as PNG."""
    size = {"width": screenshot.width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": screenshot.scheme}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    driver.get(f"{address}?{urlencode(screenshot.link)}")
    WebDriverWait(driver, 120).until(lambda driver: driver.execute_script(IS_READY))
    script = (
        "document.activeElement.blur(); document.querySelector(arguments[0] || "
        "'x')?.focus({preventScroll: true});"
    )
    driver.execute_script(script, screenshot.focus)
    script = """
        const box = (selector) => document.querySelector(selector).getBoundingClientRect();
        const top = arguments[0] ? scrollY + box(arguments[0]).top - 10 : 0;
        return [top, scrollY + box(arguments[1]).bottom + 6 - top];
    """
    top, height = driver.execute_script(script, screenshot.first, screenshot.last)
    clip = {"x": 0, "y": top, "width": screenshot.width, "height": height, "scale": 1}
    picture = driver.execute_cdp_cmd(
        "Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip}
    )
    return with_palette(base64.b64decode(picture["data"]))


def with_palette(picture: bytes) -> bytes:
    """Returns a PNG with 256 colors, which makes the file smaller. A channel of a color changes by
    at most 7 of 255.
    """
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    # Other methods change colors of small areas. Dithering would put dots into areas of one color.
    image = image.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    file = io.BytesIO()
    image.save(file, "png", optimize=True)
    return file.getvalue()


if __name__ == "__main__":
    main(sys.argv[1])
