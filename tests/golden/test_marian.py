"""Compares vocabularies and models that were imported from transformers with `MarianTokenizer` and
`MarianMTModel`.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.data.vocabularies.graph import graph_vocabulary
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding.translator import Translator
from t2t_repro.huggingface.config import read_config
from t2t_repro.huggingface.model import MarianImport
from t2t_repro.huggingface.vocabulary import read_vocabulary

RECORDED = Path(__file__).parent / "data" / "marian"
MODELS = Path(__file__).resolve().parents[2].parent / "shared" / "golden" / "huggingface"


def check_encoding(
    vocabulary: Vocabulary, texts: Sequence[str], ids: list[list[int]], numbers: list[int]
) -> None:
    """Asserts that texts have these ids in Python and in the graph. `numbers` has transformers'
    number of each id.
    """
    encoded = vocabulary.encode(texts)
    assert [[numbers[number] for number in row] for row in encoded] == ids
    assert [[*row, 1] for row in graph_vocabulary(vocabulary).tokenize(texts).to_list()] == encoded


def check_decoding(
    vocabulary: Vocabulary, ids: list[list[int]], texts: list[str], numbers: list[int]
) -> None:
    rows = [[numbers.index(number) for number in row] for row in ids]
    assert vocabulary.decode(rows) == texts
    ragged = tf.ragged.constant(rows, tf.int32, ragged_rank=1, row_splits_dtype=tf.int64)
    assert [
        text.decode() for text in graph_vocabulary(vocabulary).detokenize(ragged).numpy()
    ] == texts


def test_small_vocabulary_with_languages() -> None:
    vocabulary, source_ids, target_ids = read_vocabulary(RECORDED, read_config(RECORDED))
    results = json.loads((RECORDED / "results.json").read_text("utf-8"))
    check_encoding(vocabulary.sources, results["texts"], results["source_ids"], source_ids)
    check_encoding(vocabulary, results["texts"], results["target_ids"], target_ids)
    check_decoding(vocabulary, results["rows"], results["decoded"], target_ids)
    assert sorted(vocabulary.tags) == [">>deu<<", ">>nds_Latn<<"]
    plain = [
        text
        for text in results["texts"]
        if not text.startswith(">>") and text == text.strip("\x00\x01")
    ]
    assert vocabulary.encode_sources(plain) == vocabulary.sources.encode(plain)


def check_logits(
    output_dir: Path, path: Path, source_ids: list[int], target_ids: list[int]
) -> None:
    """Asserts that the model in a model folder has the logits in a file of transformers."""
    folder = ModelFolder(output_dir)
    golden = np.load(path)
    inputs = np.argsort(source_ids)[golden["inputs"]]
    targets = np.argsort(target_ids)[golden["targets"]]
    logits = np.asarray(folder.model(folder.checkpoint())(inputs, targets))
    np.testing.assert_allclose(logits, golden["logits"][:, :, target_ids], atol=1e-4)


@pytest.mark.skipif(not MODELS.exists(), reason="../shared/golden/huggingface does not exist")
@pytest.mark.parametrize("name", ["opus_like", "separate"])
def test_trained_models(name: str, tmp_path: Path) -> None:
    golden = MODELS / name / "expected"
    lines = {path.stem: path.read_text("utf-8").split("\n")[:-1] for path in golden.glob("*.txt")}
    ids = {path.stem: json.loads(path.read_text("utf-8")) for path in golden.glob("*.json")}
    vocabulary, source_ids, target_ids = read_vocabulary(MODELS / name, read_config(MODELS / name))
    for texts, rows in (
        (lines["source"], ids["source_ids"]),
        ([*ids["odd_ids"]], [*ids["odd_ids"].values()]),
    ):
        check_encoding(vocabulary.sources, texts, rows, source_ids)
        assert vocabulary.encode_sources(texts) == vocabulary.sources.encode(texts)
    check_decoding(
        vocabulary, [row[1:-1] for row in ids["greedy_ids"]], lines["greedy"], target_ids
    )
    assert vocabulary.separate_source_size == (vocabulary.size if name == "separate" else 0)

    MarianImport(MODELS / name).write(str(tmp_path))
    check_logits(tmp_path, golden / "logits.npz", source_ids, target_ids)
    translator = Translator.from_dir(str(tmp_path))
    assert translator.decode_hparams.beam_size == 4
    translations = translator.translate(lines["source"], beam_size=1)
    for translation, (_, *row) in zip(translations, ids["greedy_ids"], strict=True):
        output = [target_ids[number] for number in translation.hypotheses[0].ids]
        # transformers ended outputs after 60 tokens. The last token is the end.
        assert output == row if len(output) <= 60 else output[:59] == row[:-1]
