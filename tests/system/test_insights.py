"""Tests the page of t2t-insights in a real browser. Expected texts and numbers are the server's own
answers.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from selenium.webdriver.common.keys import Keys

from web_page import CHROMIUM, DRIVER, SENTENCE, SLOW, Page, Server, SlowModel, browser, set_screen

pytestmark = [
    pytest.mark.skipif(
        not (CHROMIUM and DRIVER), reason="chromium or chromedriver is not installed"
    ),
    pytest.mark.usefixtures("no_graphs"),
]
VIEW = "h3, .summary, .translation, .heatmap th"


@pytest.fixture(scope="module")
def server() -> Server:
    return Server()


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browser(tmp_path_factory.mktemp("browser")) as driver:
        yield driver


@pytest.fixture
def page(driver: Any, server: Server) -> Iterator[Page]:
    """Returns the page, and asserts after the test that the console is empty and no other host was
    asked.
    """
    page = Page(driver, server)
    set_screen(driver, 1280, 900)
    yield page
    assert page.errors() == []
    addresses = driver.execute_script(
        "return performance.getEntriesByType('resource').map((entry) => entry.name)"
    )
    assert addresses and all(address.startswith(server.url) for address in addresses), addresses


def number(value: float, digits: int) -> str:
    """Returns a number as the page writes it, with a minus sign."""
    return f"{value:.{digits}f}".replace("-", "\N{MINUS SIGN}")


def test_outputs_and_their_search_are_shown(page: Page, server: Server) -> None:
    page.open()
    page.one(".introduction button").click()  # the example of an empty page
    page.wait_for_results()
    answer = server.translate()
    hypotheses = answer["hypotheses"]
    steps = answer["search"]["steps"]
    assert page.text(".translation") == hypotheses[0]["text"]
    assert page.texts(".outputs .score b") == [
        number(hypothesis["score"], 3) for hypothesis in hypotheses
    ]
    tokens = hypotheses[1]["tokens"]
    assert page.texts(".outputs li:nth-child(2) .token") == [
        token["label"].replace("▁", "_") for token in tokens
    ]
    for token, label in zip(tokens, page.labels(".outputs li:nth-child(2) .token"), strict=True):
        assert label.endswith(f"log-probability {number(token['log_prob'], 2)}")
    best = iter(page.texts(".outputs .token"))
    common = page.texts(".outputs li:nth-child(2) .token:not(.differs)")
    assert 0 < len(common) < len(tokens) and all(token in best for token in common)  # in this order
    page.driver.execute_script(
        "navigator.clipboard.writeText = async (text) => { window.copied = text; }"
    )
    page.one(".outputs li:nth-child(2) .copy").click()
    assert page.driver.execute_script("return window.copied") == hypotheses[1]["text"]

    outputs = {
        node["output"]: (step, node["id"]) for step, nodes in enumerate(steps, 1) for node in nodes
    }
    end, _ = outputs[0]
    other_end, other_node = outputs[1]
    check_step(page, steps, end)  # the page opens where the best output ends
    assert number(answer["search"]["end"]["best_possible"], 3) in page.text(".stop")
    first, previous, following, last = page.all(".steps button")
    for control, step in (
        (last, len(steps)),
        (previous, len(steps) - 1),
        (first, 1),
        (following, 2),
    ):
        control.click()
        check_step(page, steps, step)
    page.all(".outputs input")[1].click()  # marks the path to this output
    check_step(page, steps, other_end)
    assert str(other_node) in [
        element.get_attribute("data-node") for element in page.all(".node.on-path")
    ]

    field = page.one("#beam_size")
    field.clear()
    field.send_keys("2", Keys.TAB)
    page.wait("return document.querySelectorAll('.outputs li').length === 2")
    scores = [
        number(hypothesis["score"], 3)
        for hypothesis in server.translate(beam_size=2, num_best=2)["hypotheses"]
    ]
    assert page.texts(".outputs .score b") == scores


def check_step(page: Page, steps: Any, step: int) -> None:
    """Asserts that the page shows a step of the search in the tree, in the table and at the
    controls.
    """
    candidates = steps[step - 1]
    shown = [node for nodes in steps[:step] for node in nodes]
    rows = [row.split("\t") for row in page.texts(".candidates tbody tr")]
    assert [row[1].strip() for row in rows] == [node["fate"] for node in candidates]
    assert page.texts(".candidates b") == [node["token"].replace("▁", "_") for node in candidates]
    assert [row[4] for row in rows] == [number(node["log_prob"], 3) for node in candidates]
    for fate in ("alive", "finished", "pruned"):
        # The empty hypothesis is alive, too.
        count = sum(node["fate"] == fate for node in shown) + (fate == "alive")
        assert len(page.all(f".node.{fate}")) == count
    assert page.text(".summary").startswith(f"Step {step} of {len(steps)}:")
    box = page.one(".tree-box").rect
    column = page.one(".tree .current").rect
    assert box["x"] <= column["x"] and column["x"] + column["width"] <= box["x"] + box["width"]


def test_layers_and_heads_of_attention(page: Page, server: Server) -> None:
    page.open(source=SENTENCE)
    ids = server.translate()["hypotheses"][0]["ids"]
    for kind, layer, head in (("cross", 1, "2"), ("cross", 2, "mean"), ("encoder", 1, "1")):
        page.choose("Attention", kind)
        page.choose("Layer", str(layer))
        page.choose("Head", head)
        answer = server.models[0].attention(SENTENCE, ids, kind)
        heads = np.array(answer["weights"][layer - 1])
        weights = heads.mean(axis=0) if head == "mean" else heads[int(head) - 1]
        shown = [float(label.rpartition(": ")[2]) for label in page.labels(".heatmap .cell")]
        np.testing.assert_allclose(shown, weights.flatten(), atol=6e-4)
        assert len(page.all(".stroke")) == (weights >= 0.02).sum()
        assert page.texts(".heatmap thead th") == [key.replace("▁", "_") for key in answer["keys"]]
    page.driver.execute_script("document.querySelector('.word').focus()")
    page.press(Keys.ARROW_RIGHT)  # the second query shows only its own weights
    texts = page.texts(".strokes g[aria-label=Keys] .weight")
    assert [float(text or 0) for text in texts] == pytest.approx(
        np.where(weights[1] >= 0.02, weights[1], 0).tolist(), abs=6e-3
    )


def test_two_models_stand_side_by_side_or_on_a_phone_below_each_other(
    page: Page, server: Server
) -> None:
    page.open(source=SENTENCE, compare=2)
    texts = [server.translate(model=model)["hypotheses"][0]["text"] for model in (0, 1)]
    assert page.texts(".translation") == texts and texts[0] != texts[1]
    assert page.texts(".model b") == ["first", "second"]
    assert page.texts(".translation .differs")
    left, right = (side.rect for side in page.all(".side"))
    assert left["y"] == right["y"] and left["x"] + left["width"] < right["x"]
    set_screen(page.driver, 360, 740)
    assert page.driver.execute_script("return document.documentElement.scrollWidth") <= 360
    script = (
        "return [...document.querySelectorAll('.scroll:not(.tree-box)')].map((b) => b.scrollWidth "
        "- b.clientWidth)"
    )
    assert max(page.driver.execute_script(script)) <= 0
    left, right = (side.rect for side in page.all(".side"))
    assert left["y"] + left["height"] <= right["y"]


def test_wrong_input_is_refused_and_html_is_text(page: Page, server: Server) -> None:
    source = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>&lt;"
    page.open(source=source, kind="encoder")
    assert page.text(".side .source") == source
    assert not page.driver.execute_script("return window.hacked") and not page.all(
        "main script, main img"
    )
    for text, message in (
        ("a" * 1001, "1001 characters, but the limit is 1000"),
        ("  ", "sentence is empty"),
    ):
        page.driver.execute_script("document.querySelector('#source').value = arguments[0]", text)
        page.one("#translate").click()
        assert message in page.text("#error")
    page.type("漢" * 60)  # 180 bytes; each byte is a token
    page.press(Keys.ENTER)
    page.wait("return document.querySelector('#error').innerText.includes('shorten it to 100')")
    assert page.text("#error").startswith("The sentence has 18")
    [line] = page.errors()  # the browser's own message about the status 400
    assert "status of 400" in line
    page.open(source="a cat", num_best=5)
    assert page.text("#error").startswith(
        "The number of outputs must be a whole number from 1 to 4."
    )


def test_a_link_brings_back_the_view(page: Page, server: Server) -> None:
    page.open(source=SENTENCE)
    page.all(".outputs input")[2].click()
    page.wait_for_results()
    page.all(".steps button")[0].click()
    page.choose("Attention", "decoder")
    page.choose("Layer", "1")
    page.choose("Head", "2")
    page.wait_for_results()
    page.wait("return location.search.includes('head=2')")
    link = page.driver.current_url
    view = page.texts(VIEW)
    page.type("a cat")
    page.press(Keys.ENTER)
    page.wait("return document.querySelector('.source')?.innerText === 'a cat'")
    page.wait_for_results()
    page.driver.back()
    page.wait("return document.querySelector('.source').innerText === arguments[0]", SENTENCE)
    page.wait_for_results()
    assert page.texts(VIEW) == view
    page.driver.get("about:blank")
    page.driver.get(link)
    page.wait_for_results()
    assert page.texts(VIEW) == view
    # Values that do not exist are replaced by the nearest ones or the defaults.
    page.open(source=SENTENCE, step=999, output=99, kind="x", layer=-3, head="<b>")
    assert page.text("h3") == "encoder-decoder attention, layer 1, mean of the heads"


def test_an_older_answer_does_not_replace_a_newer_one_and_a_dead_server_is_reported(
    page: Page, server: Server
) -> None:
    page.open(source=SENTENCE)
    page.type(f"{SLOW} dog")
    page.press(Keys.ENTER)
    assert SlowModel.asked.wait(30)
    page.type("a cat")
    page.press(Keys.ENTER)
    page.wait("return document.querySelector('.source').innerText === 'a cat'")
    SlowModel.go_on.set()
    assert SlowModel.answered.wait(30)
    # The page would read the older answer before these two.
    page.driver.execute_async_script(
        "const ask = () => fetch('api/models'); ask().then(ask).then(arguments[0])"
    )
    page.wait_for_results()
    assert page.texts(".side .source") == ["a cat"]
    page.driver.set_network_conditions(offline=True, latency=0, throughput=0)
    page.type("a dog")
    page.press(Keys.ENTER)
    page.wait(
        "return document.querySelector('#error').innerText.includes('The server has stopped')"
    )
    assert page.texts(".side .source") == ["a cat"]
    page.driver.delete_network_conditions()
    # The browser's own messages about the connection.
    assert all("ERR_" in message for message in page.errors())
