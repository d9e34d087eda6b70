"""Tests t2t-attention: the files that it writes, and what it refuses."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest

import programs
from models import weights_of, write_checkpoint
from t2t_repro.checkpoints.model_folder import ModelFolder, Origin
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding.translator import Translator
from t2t_repro.hparam import HParams
from t2t_repro.models import variants
from t2t_repro.visualization.attention import pair_attention

pytestmark = pytest.mark.usefixtures("no_graphs")
SOURCE = "--source=the dog"


@pytest.fixture(scope="module")
def model(
    tmp_path_factory: pytest.TempPathFactory, tiny_hparams: HParams, tiny_vocabulary: Vocabulary
) -> str:
    """Returns the path of a model folder with an untrained model of one layer with two heads."""
    path = tmp_path_factory.mktemp("attention") / "m"
    origin = Origin("numbers_ende", {}, "vocab.numbers_ende.512.model", "0123456789ab", 1)
    folder = ModelFolder.create(path, tiny_hparams, tiny_vocabulary, origin)
    keras.utils.set_random_seed(1)
    weights = weights_of(variants.transformer(tiny_hparams, tiny_vocabulary.size))
    write_checkpoint(folder.path, 1, weights, tiny_vocabulary.fingerprint)
    return str(path)


def test_files(model: str, tmp_path: Path) -> None:
    out = tmp_path / "figures"
    arguments = (
        f"--output_dir={model}",
        SOURCE,
        "--target=a cät",
        f"--out={out}",
        "--format=svg,json,bertviz",
    )
    result = programs.succeed("attention", *arguments, "--heads=2", "--style=lines", "--word=dog")
    assert "target: a cät" in result.stderr
    assert sorted(path.name for path in out.iterdir()) == [
        "attention.json",
        "bertviz.npz",
        "encoder_lines.svg",
    ]
    content = json.loads((out / "attention.json").read_text())
    assert content["cross"]["heads"] == [2] and np.shape(content["decoder"]["weights"])[:2] == (
        1,
        1,
    )
    assert "<0xC3>" in content["cross"]["queries"]  # a character that the vocabulary lacks
    picture = (out / "encoder_lines.svg").read_text("utf-8")
    assert ">the<" in picture and ">source: the dog<" in picture
    programs.refused(
        programs.run("attention", *arguments), "exists; choose another --out, or give --overwrite"
    )
    programs.succeed(
        "attention", *arguments[:-1], "--format=json", "--overwrite", "--attention=cross"
    )
    content = json.loads((out / "attention.json").read_text())
    assert content.keys() == {"cross"} and content["cross"]["heads"] == [1, 2]


def test_a_figure_of_the_paper(model: str, tmp_path: Path) -> None:
    out = tmp_path / "f"
    flags = f"--output_dir={model}", f"--out={out}", "--format=svg"
    programs.succeed("attention", *flags, "--figure=4")
    text = (out / "figure4.svg").read_text("utf-8")
    assert ">application<" in text and 'layer 1, heads 1 and 2, "its"' in text.replace(
        "&quot;", '"'
    )
    programs.refused(
        programs.run("attention", *flags, "--figure=3", "--word=dog"), "--word=dog", " making "
    )


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--layers=2", "--layers=2: encoder self-attention has no layer 2; choose one of 1"),
        ("--heads=1,3", "--heads=3: encoder self-attention has no head 3; choose one of 1, 2"),
        (
            "--word=bird",
            "--word=bird: no query of encoder self-attention has this name; choose one of the",
        ),
        (
            f"--source={'dog ' * 300}",
            "the source has 301 tokens, but this model at most 256; shorten it",
        ),
    ],
)
def test_what_the_model_does_not_have(model: str, tmp_path: Path, flag: str, words: str) -> None:
    source = SOURCE if "--source" not in flag else ""
    arguments = filter(
        None, [f"--output_dir={model}", source, "--target=a", f"--out={tmp_path / 'out'}", flag]
    )
    programs.refused(programs.run("attention", *arguments), words)
    assert not list(tmp_path.iterdir())


def test_the_translator_returns_the_attention_of_its_translation(
    model: str, tiny_vocabulary: Vocabulary
) -> None:
    translator = Translator.from_dir(model, beam_size=2, extra_length=3)
    result = pair_attention(translator, "the dog", " ")
    translation = translator.translate(["the dog"])[0]
    assert result.target == translation.text
    assert result.kinds["cross"].queries == tuple(
        tiny_vocabulary.pieces(translation.hypotheses[0].ids)
    )
    pair = (np.array([ids]) for ids in (translation.hypotheses[0].ids, translation.source_ids))
    targets, inputs = pair
    memory = translator.model.encode(inputs)
    _, layers = translator.model.decode(targets, memory, return_attention=True)
    weights = np.concatenate([layer["cross"] for layer in layers])
    np.testing.assert_array_equal(result.kinds["cross"].weights, weights)
