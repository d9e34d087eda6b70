"""Data directories, model folders and exports of commit 2e29fd7 open, and give the results that it
gave.

data/README.md says how the files of data/2e29fd7 were made.
"""

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  the export needs its operations

from programs import succeed
from t2t_repro.decoding import Translator

DATA = Path(__file__).parent / "data" / "2e29fd7"
RECORDED: dict[str, Any] = json.loads((DATA / "results.json").read_text("utf-8"))
PAIRS: list[list[str]] = RECORDED["pairs"]
SOURCES = [source for source, _ in PAIRS]
PROBLEM = ("--problem=numbers_ende", "--train_size=400", "--vocab_size=340")
OTHERS = (
    "relative",
    "neighborhood",
    "transformer_moe",
    "gnmt",
    "convs2s",
    "bytenet",
    "deep_att",
    "moe",
)
"""Folders of models that were trained for only 60 steps, so that their translations are bad."""
RESULTS_OF_TRAINING = (
    "train_loss",
    "learning_rate",
    "gradient_norm",
    "dev_loss",
    "dev_accuracy",
    "dev_exact_matches",
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with the data directory "data" and the model folders."""
    folder = tmp_path_factory.mktemp("folders")
    with tarfile.open(DATA / "folders.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def rows(text: str) -> list[list[Any]]:
    """Returns the cells of a program's output. Cells with numbers become floats."""

    def value(cell: str) -> Any:
        return cell if not cell or cell[0].isalpha() else float(cell)

    return [[value(cell) for cell in line.split("\t")] for line in text.splitlines()]


def resumed(folders: Path, name: str) -> dict[str, float]:
    """Trains a model to step 901, and returns the numbers that t2t-trainer logged there."""
    succeed(
        "trainer",
        *PROBLEM,
        "--data_dir=data",
        f"--output_dir={name}",
        "--hparams_set=transformer_tiny",
        f"--hparams={RECORDED['hparams']}",
        "--train_steps=901",
        "--log_step_count_steps=1",
        "--eval_decode_lines=20",
        "--local_eval_frequency=100",
        cwd=folders,
    )
    lines = [
        json.loads(line)
        for line in (folders / name / "metrics.jsonl").read_text("utf-8").splitlines()
    ]
    numbers = {name: value for line in lines if line["step"] == 901 for name, value in line.items()}
    return {name: numbers[name] for name in RESULTS_OF_TRAINING}


def decoded(folder: Path, scratch: Path) -> list[list[Any]]:
    (scratch / "sources").write_text("".join(f"{source}\n" for source in SOURCES), "utf-8")
    options = f"--decode_from_file={scratch}/sources", "--decode_hparams=write_beam_scores=true"
    return rows(succeed("decoder", f"--output_dir={folder}", *options).stdout)


def scored(folder: Path, scratch: Path) -> list[list[Any]]:
    (scratch / "pairs").write_text(
        "".join(f"{source}\t{target}\n" for source, target in PAIRS), "utf-8"
    )
    return rows(
        succeed("decoder", f"--output_dir={folder}", f"--score_file={scratch}/pairs").stdout
    )


def translated(signatures: Any) -> list[list[Any]]:
    """Returns an exported model's translations with their scores."""
    answer = signatures["serving_default"](inputs=tf.constant(SOURCES))
    texts = [text.decode() for text in answer["outputs"].numpy()]
    return [list(row) for row in zip(texts, answer["scores"].numpy().tolist(), strict=True)]


def interface(signatures: Any) -> dict[str, Any]:
    """Returns the types and numbers of dimensions of all inputs and outputs, by name of the
    signature.
    """
    specs = {
        name: (graph.structured_input_signature[1], graph.structured_outputs)
        for name, graph in signatures.items()
    }
    return tf.nest.map_structure(lambda spec: (spec.dtype, spec.shape.rank), specs)


def computed(folder: Path) -> dict[str, list[list[Any]]]:
    """Returns the translations of a model with their scores, and the log-probability of each target
    token.
    """
    translator = Translator.from_dir(str(folder))
    return {
        "decoded": [
            [translation.text, translation.score] for translation in translator.translate(SOURCES)
        ],
        "scored": [
            list(score.token_scores)
            for score in translator.score(SOURCES, [target for _, target in PAIRS])
        ],
    }


def compare(results: list[list[Any]], recorded: list[list[Any]]) -> None:
    """Asserts that all texts are equal, and all numbers except for rounding."""
    assert len(results) == len(recorded)
    for row, recorded_row in zip(results, recorded, strict=True):
        assert row == [
            cell if isinstance(cell, str) else pytest.approx(cell, abs=1e-4)
            for cell in recorded_row
        ]


def test_data_are_recognized_and_left_alone(folders: Path) -> None:
    before = {path: path.read_bytes() for path in (folders / "data").iterdir()}
    succeed("datagen", *PROBLEM, f"--data_dir={folders / 'data'}")
    assert {path: path.read_bytes() for path in (folders / "data").iterdir()} == before


@pytest.mark.usefixtures("no_graphs")
def test_training_resumes_with_the_optimizers_state(folders: Path) -> None:
    shutil.copytree(folders / "transformer", folders / "resumed")
    assert resumed(folders, "resumed") == pytest.approx(RECORDED["resumed"], rel=1e-4)


@pytest.mark.usefixtures("no_graphs")
def test_the_decoder_translates_and_scores_the_same(folders: Path, tmp_path: Path) -> None:
    compare(decoded(folders / "transformer", tmp_path), RECORDED["transformer"]["decoded"])
    compare(scored(folders / "transformer", tmp_path), RECORDED["transformer"]["scored"])


def test_exports_give_the_same_answers(folders: Path) -> None:
    succeed("exporter", f"--output_dir={folders / 'transformer'}")
    exports = [
        tf.saved_model.load(str(folders / "transformer" / "export" / version))
        for version in ("1", "2")
    ]
    for export in exports:
        compare(translated(export.signatures), RECORDED["transformer"]["served"])
    former, present = (interface(export.signatures) for export in exports)
    assert former == present and len(former) == 4


@pytest.mark.usefixtures("no_graphs")
@pytest.mark.parametrize("name", OTHERS)
def test_all_models_translate_and_score_the_same(folders: Path, name: str) -> None:
    results = computed(folders / name)
    for kind in ("decoded", "scored"):
        compare(results[kind], RECORDED[name][kind])
