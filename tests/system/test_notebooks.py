"""Executes the notebooks with few training steps, and checks the outputs that are stored in
them.
"""

import json
import re
import runpy
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError
from num2words import num2words

from t2t_models import MODELS, NEED_MODELS

ROOT = Path(__file__).parents[2]
TOUR, TENSOR2TENSOR = (ROOT / "notebooks" / f"{name}.ipynb" for name in ("tour", "tensor2tensor"))
MACHINE = re.compile(
    r"""(?xi) (^|[\s"'(=])/\w+/\w | ~/ | \d:\d\d | \b20\d\d-\d | \d\s?(ms|s|seconds?|minutes?)\b | tokens/s
    | warning | \b[IWE]\d{4}\s | AMD | Intel | cores\b | localhost | 0x[0-9a-f]{6}"""  # noqa: E501
)
"""Matches paths, times, dates, warnings and names of hardware."""
SENTENCE = "three hundred and ninety-five thousand and six"
GERMAN = {
    num2words(number, lang="en"): num2words(number, lang="de")
    for number in (208837, 7288, 359710, 5262, 535565, 3428, 395006, 42, 2017)
}
"""The numbers of the tour: English words and German words."""
execute = runpy.run_path(str(ROOT / "benchmarks" / "notebooks.py"))["execute"]


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def outputs(notebook: Any, cell_id: str = "") -> list[Any]:
    """Returns the outputs of all cells, or of the cell with this id."""
    cells = [cell for cell in notebook.cells if cell.id == (cell_id or cell.id)]
    return [output for cell in cells for output in cell.get("outputs", [])]


def rows(notebook: Any, cell_id: str) -> list[list[str]]:
    """Returns the rows of the table that a cell shows, without its header."""
    [table] = [
        output.data["text/markdown"] for output in outputs(notebook, cell_id) if "data" in output
    ]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in table.splitlines()[2:]]


def pictures(notebook: Any) -> list[str]:
    """Returns the pictures, as base64."""
    return [
        output.data["image/png"]
        for output in outputs(notebook)
        if "image/png" in output.get("data", {})
    ]


@pytest.mark.parametrize("path", [TOUR, TENSOR2TENSOR], ids=lambda path: path.stem)
def test_stored_outputs_are_of_one_run_and_of_no_machine(path: Path) -> None:
    notebook = read(path)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert not any(cell.metadata for cell in notebook.cells) and path.stat().st_size < 400_000
    for output in outputs(notebook):
        assert output.output_type != "error" and output.get("name") != "stderr"
        text = output.get("text") or json.dumps(
            {**output.data, "image/png": ""}, ensure_ascii=False
        )
        assert not MACHINE.search(text), text
    for link in re.findall(r"\]\(([^)#]+)", "\n".join(cell.source for cell in notebook.cells)):
        assert link.startswith("https://") or (path.parent / link).exists(), link


def test_stored_translations_are_those_of_num2words() -> None:
    notebook = read(TOUR)
    assert rows(notebook, "translate") == [[*pair, "yes"] for pair in list(GERMAN.items())[:6]]
    assert rows(notebook, "beam")[0][1] == GERMAN[SENTENCE]
    assert rows(notebook, "serve") == [[*pair] for pair in list(GERMAN.items())[6:]]
    [count] = re.findall(r"^(\d+) of 500 ", outputs(notebook, "translate")[0].text)
    assert 485 <= int(count) <= 500


def test_the_tour_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T2T_TOUR_STEPS", "10")
    notebook = execute(TOUR)
    assert rows(notebook, "text") == [[*pair] for pair in list(GERMAN.items())[:4]]
    assert outputs(notebook, "pieces")[-1].data["text/plain"] == f"['{SENTENCE}']"
    *parts, (_, total) = [
        [cell.strip("*").replace(",", "") for cell in row] for row in rows(notebook, "parameters")
    ]
    assert sum(int(count) for _, count in parts) == int(total)
    # The served graph has its own search and its own vocabulary.
    assert rows(notebook, "serve")[0][1:] == rows(notebook, "beam")[0][1:2]
    drawn = pictures(notebook)
    stored = pictures(read(TOUR))
    assert len(drawn) == len(stored) == 3


@NEED_MODELS
def test_a_model_of_tensor2tensor_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = MODELS / "v3_src_tgt_separate"
    files = {
        "MODEL": folder / "model",
        "SOURCES": MODELS / "raw/test.en",
        "OUTPUTS": folder / "out/test.decoded.de",
    }
    for name, path in files.items():
        monkeypatch.setenv(f"T2T_{name}", str(path))
    notebook = execute(TENSOR2TENSOR)
    hparams = json.loads((folder / "model" / "hparams.json").read_text("utf-8"))
    shown = {name.strip("`"): value.strip("`") for name, value, _ in rows(notebook, "hparams")}
    names = (
        "num_hidden_layers",
        "hidden_size",
        "filter_size",
        "num_heads",
        "max_length",
        "optimizer_adam_beta2",
    )
    assert {name: shown[name] for name in names} == {name: str(hparams[name]) for name in names}
    assert outputs(notebook, "compare")[0].text.startswith("200 of 200 ")
    stored = read(TENSOR2TENSOR)
    assert [
        rows(notebook, cell) == rows(stored, cell) for cell in ("import", "hparams", "translate")
    ] == [True] * 3
    assert len(pictures(notebook)) == len(pictures(stored)) == 1


def test_without_a_model_of_tensor2tensor_one_line_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("T2T_MODEL", raising=False)
    with pytest.raises(CellExecutionError) as raised:
        execute(TENSOR2TENSOR)
    assert raised.value.ename == "UserError" and "OLD_FOLDER" in raised.value.evalue
    assert "\n" not in raised.value.evalue
