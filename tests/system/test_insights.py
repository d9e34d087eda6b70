"""Tests the page of t2t-insights in a real browser. Expected texts and numbers are the server's own answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from web_page import CHROMIUM, CONTRAST, DRIVER, FOCUS_RECORDER, SENTENCE, SLOW, Page, Server, browser, set_screen

pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium or chromedriver is not installed")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("insights"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browser(tmp_path_factory.mktemp("browser")) as driver:
        yield driver


@pytest.fixture
def page(driver: Any, server: Server) -> Iterator[Page]:
    """Returns the page, and asserts after the test that the console is empty and no other host was asked."""
    page = Page(driver, server)
    set_screen(driver, 1280, 900)
    yield page
    assert page.errors() == []
    addresses = driver.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert addresses and all(address.startswith(server.url) for address in addresses), addresses


def number(value: float, digits: int) -> str:
    """Returns a number as the page writes it, with a minus sign."""
    return f"{value:.{digits}f}".replace("-", "\N{MINUS SIGN}")


def test_a_sentence_is_translated_with_enter_and_with_the_button(page: Page, server: Server) -> None:
    page.open()
    page.type(SENTENCE)
    page.press(Keys.ENTER)
    page.wait_for_results()
    hypotheses = server.translate()["hypotheses"]
    assert page.text(".translation") == hypotheses[0]["text"]
    assert page.texts(".outputs .score b") == [number(hypothesis["score"], 3) for hypothesis in hypotheses]
    assert hypotheses[0]["text"] in page.text("#status")
    tokens = hypotheses[1]["tokens"]
    assert page.texts(".outputs li:nth-child(2) .token") == [token["label"].replace("▁", "_") for token in tokens]
    for token, label in zip(tokens, page.labels(".outputs li:nth-child(2) .token"), strict=True):
        assert label.endswith(f"log-probability {number(token['log_prob'], 2)}")
    page.type("a cat")
    page.one("#translate").click()
    page.wait("return document.querySelector('.source')?.innerText === 'a cat'")
    assert page.text(".translation") == server.translate("a cat")["hypotheses"][0]["text"].strip()


def test_new_settings_change_the_search(page: Page, server: Server) -> None:
    page.open(source=SENTENCE)
    field = page.one("#beam_size")
    field.clear()
    field.send_keys("2", Keys.TAB)
    page.wait("return document.querySelectorAll('.outputs li').length === 2")
    assert page.one("#num_best").get_attribute("value") == "2"  # a beam of 2 hypotheses has at most 2 outputs
    field = page.one("#alpha")
    field.clear()
    field.send_keys("1.5", Keys.TAB)
    answer = server.translate(beam_size=2, alpha=1.5, num_best=2)
    scores = [number(hypothesis["score"], 3) for hypothesis in answer["hypotheses"]]
    page.wait("return document.querySelector('.outputs .score b').innerText === arguments[0]", scores[0])
    assert page.texts(".outputs .score b") == scores
    for value, message in (("17", "from 1 to 16"), ("2.5", "whole number"), ("", "whole number")):
        field = page.one("#beam_size")
        field.clear()
        field.send_keys(value, Keys.TAB)
        page.wait("return document.querySelector('#error').innerText.includes(arguments[0])", message)
        assert field.get_attribute("aria-invalid") == "true"
    assert page.texts(".outputs .score b") == scores


def test_the_search_is_stepped_through(page: Page, server: Server) -> None:
    page.open(source=SENTENCE)
    search = server.translate()["search"]
    steps, end = search["steps"], search["end"]
    check_step(page, steps, len(steps))
    assert f"after step {len(steps)} " in page.text(".stop")
    assert number(end["best_possible"], 3) in page.text(".stop")
    worst = end["worst_of_best"]
    assert ("fewer than 4" if worst is None else number(worst, 3)) in page.text(".stop")
    first, previous, following, last = page.all(".steps button")
    for control, step in ((previous, len(steps) - 1), (first, 1), (previous, 1), (following, 2), (last, len(steps))):
        control.click()
        check_step(page, steps, step)
    page.one(".steps input").send_keys(Keys.HOME, Keys.ARROW_RIGHT)
    check_step(page, steps, 2)
    page.one(".tree-box").send_keys(Keys.ARROW_RIGHT)
    check_step(page, steps, 3)
    ActionChains(page.driver).move_to_element(page.one("h1")).perform()  # a candidate under the pointer is marked, too
    page.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    marked = {int(node.get_attribute("data-node")) for node in page.all(".node.on-path")}
    second = steps[2][1]
    assert {0, second["id"], second["parent"]} <= marked and len(marked) == 4
    assert page.texts("tr.pointed td")[0] == "2"
    # Choosing another output marks the path to it.
    page.press(Keys.END)
    page.all(".outputs input")[1].click()
    [node] = [candidate["id"] for step in steps for candidate in step if candidate["output"] == 1]
    assert str(node) in [element.get_attribute("data-node") for element in page.all(".node.on-path")]


def check_step(page: Page, steps: Any, step: int) -> None:
    """Asserts that the page shows a step of the search in the tree, in the table and at the controls."""
    candidates, shown = steps[step - 1], [node for nodes in steps[:step] for node in nodes]
    rows = [row.split("\t") for row in page.texts(".candidates tbody tr")]
    assert [row[1].strip() for row in rows] == [node["fate"] for node in candidates]
    assert page.texts(".candidates mark") == [node["token"].replace("▁", "_") for node in candidates]
    assert [row[4] for row in rows] == [number(node["log_prob"], 3) for node in candidates]
    for fate in ("alive", "finished", "pruned"):
        count = sum(node["fate"] == fate for node in shown) + (fate == "alive")  # the empty hypothesis is alive, too
        assert len(page.all(f".node.{fate}")) == count
        assert f"{sum(node['fate'] == fate for node in candidates)} {fate}" in page.text(".summary")
    assert page.text(".summary").startswith(f"Step {step} of {len(steps)}:")
    assert page.one(".steps input").get_attribute("value") == str(step)


def test_layers_and_heads_of_attention(page: Page, server: Server) -> None:
    page.open(source=SENTENCE)
    ids = ",".join(map(str, server.translate()["hypotheses"][0]["ids"]))
    for kind, layer, head in (("cross", 1, "2"), ("cross", 2, "mean"), ("encoder", 1, "1"), ("decoder", 2, "1")):
        page.choose("Attention", kind)
        page.choose("Layer", str(layer))
        page.choose("Head", head)
        answer = server.ask("attention", model=0, source=SENTENCE, target_ids=ids, kind=kind)
        heads = np.array(answer["weights"][layer - 1])
        weights = heads.mean(axis=0) if head == "mean" else heads[int(head) - 1]
        shown = [float(label.rpartition(": ")[2]) for label in page.labels(".heatmap .cell")]
        np.testing.assert_allclose(shown, weights.flatten(), atol=6e-4)
        assert len(page.all(".stroke")) == (weights >= 0.02).sum()
        assert page.texts(".heatmap thead th") == [key.replace("▁", "_") for key in answer["keys"]]


def test_a_word_shows_its_weights(page: Page, server: Server) -> None:
    page.open(source=SENTENCE, layer=1, head=1, kind="encoder")
    ids = ",".join(map(str, server.translate()["hypotheses"][0]["ids"]))
    weights = server.ask("attention", model=0, source=SENTENCE, target_ids=ids, kind="encoder")["weights"][0][0]
    page.driver.execute_script("document.querySelector('.word').focus()")
    page.press(Keys.ARROW_RIGHT)  # the second query
    assert 2 <= sum(weight >= 0.02 for weight in weights[1]) < len(weights[1])
    shown = page.texts(".strokes g[aria-label=Keys] .weight")
    assert [float(text or 0) for text in shown] == pytest.approx([w if w >= 0.02 else 0 for w in weights[1]], abs=6e-3)
    count = sum(weight >= 0.02 for weight in weights[1])
    assert len(page.all(".stroke:not(.hidden)")) == count
    page.driver.execute_script("document.querySelector('.heatmap td[tabindex=\"0\"]').focus()")
    page.press(Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    assert float(page.text(".tooltip").rpartition(": ")[2]) == pytest.approx(weights[1][1], abs=6e-4)
    page.press(Keys.ESCAPE)
    assert not page.one(".tooltip").is_displayed()


def test_two_models_side_by_side(page: Page, server: Server) -> None:
    page.driver.get(server.url)  # with two models, the page compares them
    page.wait("return document.querySelector('#results').childElementCount")
    page.type(SENTENCE)
    page.press(Keys.ENTER)
    page.wait_for_results()
    texts = [server.translate(model=model)["hypotheses"][0]["text"] for model in (0, 1)]
    assert page.texts(".translation") == texts and texts[0] != texts[1]
    assert page.texts(".model b") == ["first", "second"]
    left, right = (side.rect for side in page.all(".side"))
    assert left["y"] == right["y"] and left["x"] + left["width"] < right["x"]
    # Stepping through the second search leaves the first as it is.
    page.all(".steps button")[4].click()
    assert [text.split()[1] for text in page.texts(".summary")][1] == "1" != page.texts(".summary")[0].split()[1]
    Select(page.one("#model")).select_by_visible_text("second")
    page.wait("return document.querySelector('.model b').innerText === 'second'")
    Select(page.one("#compare")).select_by_value("")
    page.wait("return document.querySelectorAll('.side').length === 1")
    page.wait_for_results()
    assert page.texts(".translation") == [texts[1]]
    # Its encoder has one layer, its decoder two.
    for kind, layer in (("encoder", 1), ("decoder", 2)):
        page.choose("Attention", kind)
        assert page.text("h3").endswith(f"layer {layer}, mean of the heads")
        assert len(page.all(".choice input:disabled")) == 2 - layer


def test_what_is_too_long_or_empty(page: Page, server: Server) -> None:
    page.open(source=SENTENCE)
    before = page.text(".translation")
    requests = "return performance.getEntriesByType('resource').length"
    count = page.driver.execute_script(requests)
    for text, message in (("a" * 1001, "1001 characters, but the limit is 1000"), ("  ", "sentence is empty")):
        page.driver.execute_script("document.querySelector('#source').value = arguments[0]", text)
        page.one("#translate").click()
        assert message in page.text("#error")
    assert page.driver.execute_script(requests) == count
    page.type("漢" * 60)  # 180 bytes; each byte is a token
    page.press(Keys.ENTER)
    page.wait("return document.querySelector('#error').innerText.includes('shorten it to 100')")
    assert page.text(".translation") == before
    [line] = page.errors()  # the browser's own message about the status 400
    assert "status of 400" in line


def test_html_in_the_input_is_text(page: Page) -> None:
    source = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>&lt;"
    page.open(source=source, kind="encoder")
    assert page.text(".side .source") == source
    assert not page.driver.execute_script("return window.hacked")
    assert not page.all("main script, main img")


def test_a_link_brings_back_the_view(page: Page, server: Server) -> None:
    page.open()
    page.type(SENTENCE)
    page.press(Keys.ENTER)
    page.wait_for_results()
    page.all(".outputs input")[2].click()
    page.wait_for_results()
    page.all(".steps button")[0].click()
    page.all(".steps button")[2].click()
    page.choose("Attention", "decoder")
    page.choose("Layer", "1")
    page.choose("Head", "2")
    page.wait_for_results()
    page.wait("return location.search.includes('head=2')")
    link, view = page.driver.current_url, page.texts("h3, .summary, .translation, .heatmap th")
    assert link.startswith(server.url)
    page.type("a cat")
    page.press(Keys.ENTER)
    page.wait("return document.querySelector('.source')?.innerText === 'a cat'")
    assert "step=" not in page.driver.current_url and "kind=decoder" in page.driver.current_url
    page.wait_for_results()
    page.driver.back()
    page.wait("return document.querySelector('.source').innerText === arguments[0]", SENTENCE)
    page.wait_for_results()
    assert page.texts("h3, .summary, .translation, .heatmap th") == view
    page.driver.get("about:blank")
    page.driver.get(link)
    page.wait_for_results()
    assert page.texts("h3, .summary, .translation, .heatmap th") == view
    assert page.driver.execute_script("return document.querySelectorAll('.outputs input')[2].checked")
    # Values that do not exist are replaced by the nearest ones or the defaults.
    page.open(source=SENTENCE, step=999, output=99, kind="x", layer=-3, head="<b>")
    assert page.text("h3") == "encoder-decoder attention, layer 1, mean of the heads"


def test_keyboard_only(page: Page, server: Server) -> None:
    page.driver.get(f"{server.url}?{urlencode({'source': SENTENCE, 'compare': ''})}")
    page.wait_for_results()
    # At first, the sentence has the focus. Before it, there is only the link that skips to the results.
    page.press(Keys.SHIFT + Keys.TAB)
    page.press(Keys.ENTER)
    assert page.driver.execute_script("return document.activeElement.id") == "results"
    page.driver.execute_script(FOCUS_RECORDER)
    page.driver.execute_script("document.querySelector('.skip').focus()")
    ActionChains(page.driver).send_keys(Keys.TAB * 40).perform()
    page.wait("return window.stops.length >= 40")  # the browser may still be at the first keys
    stops = page.driver.execute_script("return window.stops")
    names = [name for name, _ in stops]
    assert all(is_visible for _, is_visible in stops), stops
    assert names[:8] == ["skip", "source", "translate", "beam_size", "alpha", "num_best", "model", "compare"]
    lists = ["token", "scroll tree-box", "scroll table-box", "word query", "word key", "cell"]
    assert [name for name in dict.fromkeys(names) if name in lists] == lists
    assert names.index("cell") < 40  # tokens and cells are reached with arrow keys


def test_text_can_be_read_in_light_and_dark_mode(page: Page) -> None:
    page.open(source=SENTENCE, compare=2)
    page.driver.execute_script("document.querySelector('.word').focus()")
    page.driver.execute_script("document.querySelector('#error').textContent = 'An error.'")
    for scheme in ("light", "dark"):
        set_screen(page.driver, 1280, 900, scheme)
        contrast = page.driver.execute_script(CONTRAST)
        assert len(contrast) > 50
        assert {name: ratio for name, ratio in contrast.items() if ratio < 4.5} == {}
        page_color = page.one("body").value_of_css_property("background-color")
        assert (sum(map(int, re.findall(r"\d+", page_color)[:3])) < 200) == (scheme == "dark")


def test_a_phone_shows_all_without_scrolling_sideways(page: Page) -> None:
    set_screen(page.driver, 360, 740)
    page.open(source=" ".join([SENTENCE] * 3), compare=2)
    assert page.driver.execute_script("return document.documentElement.scrollWidth") <= 360
    assert page.driver.execute_script("return document.querySelector('.tree-box').scrollWidth") > 360
    first, second = (side.rect for side in page.all(".side"))
    assert first["y"] + first["height"] <= second["y"]


def test_an_older_answer_does_not_replace_a_newer_one(page: Page, server: Server) -> None:
    page.open(source=SENTENCE)
    page.type(f"{SLOW} dog")
    page.press(Keys.ENTER)
    server.process.wait_for(f"waits with {SLOW} dog")
    page.type("a cat")
    page.press(Keys.ENTER)
    page.wait("return document.querySelector('.source').innerText === 'a cat'")
    server.go_on.touch()
    server.process.wait_for(f"has translated {SLOW} dog")
    # The page would read the older answer before these two.
    page.driver.execute_async_script("const ask = () => fetch('api/models'); ask().then(ask).then(arguments[0])")
    page.wait_for_results()
    assert page.texts(".side .source") == ["a cat"]


def test_a_server_that_stops_and_starts_again(page: Page, server: Server) -> None:
    server.go_on.unlink(missing_ok=True)
    page.open(source=SENTENCE)
    translation = page.text(".translation")
    page.type(f"{SLOW} cat")
    page.press(Keys.ENTER)
    server.process.wait_for(f"waits with {SLOW} cat")
    server.stop()
    page.wait("return document.querySelector('#error').innerText.includes('The server has stopped')")
    port = server.url.rstrip("/").rpartition(":")[2]
    assert f"--port={port}" in page.text("#error") and "t2t-insights --output_dir=first" in page.text("#error")
    assert page.texts(".translation") == [translation] and page.text("#translate") == "Translate"
    server.start(int(port))
    page.type("a cat")
    page.press(Keys.ENTER)
    page.wait("return document.querySelector('.source').innerText === 'a cat'")
    page.wait_for_results()
    assert page.text("#error") == ""
    assert all("ERR_" in message for message in page.errors())  # the browser's own messages about the connection
