"""Compares models that were imported from OpenNMT-tf with their logits and greedy outputs there."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import programs
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.decoding.translator import Translator

DATA = Path(__file__).parent / "data" / "opennmt_tf"
SENTENCEPIECE = (f"--vocab={DATA / 'sp.vocab'}", f"--sentencepiece_model={DATA / 'sp.model'}")
WORDS = (f"--source_vocab={DATA / 'en.vocab'}", f"--target_vocab={DATA / 'sp.vocab'}")
FLAGS = {
    "base": SENTENCEPIECE,
    "post": SENTENCEPIECE,
    "relative": (*WORDS, f"--sentencepiece_model=,{DATA / 'sp.model'}"),
}


@pytest.mark.usefixtures("no_graphs")
@pytest.mark.parametrize("name", FLAGS)
def test_imported_models(name: str, tmp_path: Path) -> None:
    results = json.loads((DATA / "results.json").read_text("utf-8"))
    logits = np.load(DATA / "logits.npz")
    programs.succeed(
        "import", f"--opennmt_tf={DATA / name}", *FLAGS[name], f"--output_dir={tmp_path}"
    )
    translator = Translator.from_dir(str(tmp_path))
    folder = ModelFolder(tmp_path)
    model = folder.model(folder.checkpoint())
    vocabulary = folder.vocabulary
    # OpenNMT-tf's ids of padding, end, start and all others.
    order = [0, 2, 1, *range(3, vocabulary.size)]
    for row in results["rows"]:
        [inputs] = vocabulary.encode_sources([results["sources"][row]])
        [targets] = vocabulary.encode_targets([results["targets"][row]])
        # Sources end with an end token and padding, which must have no effect.
        actual = model(tf.constant([[*inputs, 0, 0]]), tf.constant([targets]))[0]
        np.testing.assert_allclose(actual, logits[f"{name}_{row}"][:, order], atol=1e-4)
    translations = translator.translate(results["sources"], beam_size=1)
    assert [translation.text for translation in translations] == results[f"{name}_greedy"]
