"""The page of t2t-insights in a real browser, and its server in a thread, with two untrained
models.
"""

import functools
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import urlencode

import keras
import numpy as np
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from t2t_repro.data.vocabularies import sentencepiece
from t2t_repro.data.vocabularies.text_rules import EOS_ID
from t2t_repro.decoding.translator import Translator
from t2t_repro.hparam import DecodeHParams, HParams
from t2t_repro.insights.answers import ExploredModel
from t2t_repro.insights.server import address, listen, serve
from t2t_repro.models import variants
from t2t_repro.visualization.attention import KINDS

OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--in-process-gpu",
    "--disable-features=SpareRendererForSitePerProcess",  # fewer processes take less time
)
CHROMIUM = shutil.which("chromium")
DRIVER = shutil.which("chromedriver")
SENTENCE = "the cat sat on the dog"
SLOW = "slow"
"""First word of sentences whose answer the server delays until it may go on."""


class SlowModel(ExploredModel):
    """A model whose answer for a sentence that begins with `SLOW` waits until the event `go_on`."""

    asked = Event()
    go_on = Event()
    answered = Event()

    def translate(self, source: str, *settings: Any) -> dict[str, Any]:
        if not source.startswith(SLOW):
            return super().translate(source, *settings)
        self.asked.set()
        self.go_on.wait()
        answer = super().translate(source, *settings)
        self.answered.set()
        return answer


class Server:
    """The server of the page, in a thread that ends with the tests."""

    def __init__(self) -> None:
        self.models = [new_model("first", 26, 2), new_model("second", 19, 1)]
        listener = listen("127.0.0.1", 0)
        self.url = address(listener)
        Thread(target=serve, args=(self.models, listener, "127.0.0.1"), daemon=True).start()

    @functools.cache  # noqa: B019, the server lives as long as the tests
    def translate(self, model: int = 0, beam_size: int = 4, num_best: int = 4) -> Any:
        """Returns the server's answer for `SENTENCE`, by default with the settings that the page
        has at first.
        """
        return self.models[model].translate(SENTENCE, beam_size, 0.6, num_best)


def new_model(name: str, seed: int, encoder_layers: int) -> ExploredModel:
    """Returns an untrained Transformer of two decoder layers with two heads.

    Its softmax prefers pieces of words to bytes, and the end token to most pieces.
    """
    layers = {"num_encoder_layers": encoder_layers, "num_decoder_layers": 2}
    words = sentencepiece.train(["the dog", "a cat", SENTENCE], 290)
    keras.utils.set_random_seed(seed)
    model = variants.transformer(
        HParams(**layers, hidden_size=16, filter_size=16, num_heads=2), words.size
    )
    scales = [
        0.1 if piece.startswith("<0x") else 3.0 for piece in words.pieces(list(range(words.size)))
    ]
    scales[EOS_ID] = 6.0
    table = model.softmax.table
    table.assign(table * np.array(scales, np.float32)[:, None])
    return SlowModel(
        name, "", Translator(model, words, DecodeHParams(extra_length=4), max_length=256), SENTENCE
    )


class Page:
    """The page in a browser."""

    def __init__(self, driver: Any, server: Server) -> None:
        self.driver = driver
        self.server = server

    def open(self, **link: Any) -> None:
        """Shows a link, and waits for the translation if it has a sentence. One model, unless it
        says otherwise.

        If the page is there, it follows the link as after the browser's button "back", which takes
        less time.
        """
        address = f"{self.server.url}?{urlencode({'compare': ''} | link)}"
        if self.driver.current_url.startswith(self.server.url):
            self.driver.execute_script(
                (
                    "history.pushState(null, '', arguments[0]); window.dispatchEvent(new "
                    "PopStateEvent('popstate'))"
                ),
                address,
            )
        else:
            self.driver.get(address)
        self.wait("return document.querySelector('#results').childElementCount")
        if "source" in link:
            self.wait_for_results()

    def wait(self, script: str, *arguments: Any) -> Any:
        """Waits until a script returns something that is true, and returns it."""
        wait = WebDriverWait(self.driver, 30, poll_frequency=0.1)
        return wait.until(lambda driver: driver.execute_script(script, *arguments), script)

    def wait_for_results(self) -> None:
        self.wait(
            "return document.querySelectorAll('.side').length "
            "&&document.querySelectorAll('.side').length === "
            "document.querySelectorAll('.heatmap').length "
            "&&!document.querySelector('[aria-busy=true]')"
        )

    def all(self, selector: str) -> list[WebElement]:
        found: list[WebElement] = self.driver.find_elements(By.CSS_SELECTOR, selector)
        return found

    def one(self, selector: str) -> WebElement:
        return self.all(selector)[0]

    def texts(self, selector: str) -> list[str]:
        """Returns the visible texts of elements."""
        script = (
            "return [...document.querySelectorAll(arguments[0])].map((node) => node.innerText ?? "
            "node.textContent)"
        )
        texts: list[str] = self.driver.execute_script(script, selector)
        return texts

    def text(self, selector: str) -> str:
        [text] = self.texts(selector)
        return text

    def labels(self, selector: str) -> list[str]:
        script = "return [...document.querySelectorAll(arguments[0])].map((node) => node.ariaLabel)"
        labels: list[str] = self.driver.execute_script(script, selector)
        return labels

    def press(self, *keys: str) -> None:
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def type(self, text: str) -> None:
        self.one("#source").clear()
        self.one("#source").send_keys(text)

    def choose(self, legend: str, value: str) -> None:
        """Clicks a radio button of the attention and waits until the heading of the pictures says
        so.
        """
        script = """
            const sets = [...document.querySelectorAll("fieldset")];
            const set = sets.find((set) => set.querySelector("legend").innerText === arguments[0]);
            set.querySelector(`input[value="${arguments[1]}"]`).click();
        """
        self.driver.execute_script(script, legend, value)
        heading = KINDS.get(value) or (
            "mean of the heads" if value == "mean" else f"{legend.lower()} {value}"
        )
        self.wait("return document.querySelector('h3').innerText.includes(arguments[0])", heading)

    def errors(self) -> list[str]:
        """Returns the messages of the browser's console since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


@contextmanager
def browser(folder: Path) -> Iterator[Any]:
    """Starts Chromium without a window; yields its driver. Its files are in `folder`."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for option in (*OPTIONS, f"--user-data-dir={folder}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def set_screen(driver: Any, width: int, height: int, scheme: str = "light") -> None:
    """Sets the size of the window and the color scheme, "light" or "dark"."""
    screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
