"""Tests which trainings of OpenNMT-tf are imported, and that a refused one leaves nothing behind."""  # noqa: E501

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import programs
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.checkpoints.reader import key, read_checkpoint

DATA = Path(__file__).parents[2] / "golden" / "data" / "opennmt_tf"
FLAGS = (
    "--opennmt_tf=run",
    "--vocab=run/sp.vocab",
    "--sentencepiece_model=run/sp.model",
    "--output_dir=new",
)
TABLES = (
    "model/examples_inputter/features_inputter/embedding",
    "model/examples_inputter/labels_inputter/embedding",
)
Weights = dict[str, np.ndarray]

pytestmark = pytest.mark.usefixtures("no_graphs")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of OpenNMT-tf, "run" in the current folder, with its vocabulary."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(DATA / "base", "run")
    for name in ("sp.vocab", "sp.model", "en.vocab"):
        shutil.copy(DATA / name, "run")
    return Path("run").absolute()


def change(folder: Path, change_weights: Callable[[Weights], object], step: int = 2000) -> None:
    """Writes a checkpoint with changes of the last weights in a folder of OpenNMT-tf."""
    reader = tf.train.load_checkpoint(str(folder / "ckpt-2000"))
    names = [name for name in reader.get_variable_to_shape_map() if name.startswith("model/")]
    weights = {name.removesuffix(key("")): np.array(reader.get_tensor(name)) for name in names}
    change_weights(weights)
    tf.raw_ops.SaveV2(
        prefix=str(folder / f"ckpt-{step}"),
        tensor_names=[name + key("") for name in weights],
        shape_and_slices=[""] * len(weights),
        tensors=list(weights.values()),
    )


def imported() -> tuple[Weights, str]:
    """Imports the folder; returns the weights without the prefix of all names, and what the program
    prints.
    """
    text = programs.succeed("import", *FLAGS).stderr
    weights = read_checkpoint(str(ModelFolder(Path("new").absolute()).checkpoint())).weights
    return {name.removeprefix("transformer/"): value for name, value in weights.items()}, text


def test_the_last_checkpoints_are_averaged_and_the_optimizer_is_ignored(run: Path) -> None:
    slot = {f"{TABLES[0]}/.OPTIMIZER_SLOT/optimizer/m": np.zeros(1), "optimizer/iter": np.zeros(1)}
    change(run, lambda weights: weights.update({TABLES[0]: weights[TABLES[0]] + 3, **slot}), 3000)
    change(run, lambda weights: None, 999)
    programs.succeed("import", *FLAGS, "--average_last=2", "--output_dir=two")
    means = read_checkpoint("two/model.ckpt-3000").weights["transformer/embedding/table"]
    last, text = imported()
    np.testing.assert_allclose(means + 1.5, last["embedding/table"], atol=1e-6)
    assert "step 3,000" in text and "not used: variables of the training (2)\n" in text
    assert "--hparams_set=opennmt_base --hparams=num_hidden_layers=1,hidden_size=16" in text


def test_a_target_embedding_may_also_be_the_matrix_before_the_softmax(run: Path) -> None:
    change(run, lambda weights: weights.update({TABLES[1]: 2 * weights[TABLES[0]]}))
    weights, _ = imported()
    for name in ("softmax/table", "target_embedding/table"):
        np.testing.assert_array_equal(weights[name], 2 * weights["embedding/table"])


def test_biases_of_attention_and_logits_may_be_missing(run: Path) -> None:
    def remove(weights: Weights) -> None:
        for name in [name for name in weights if "linear_" in name or "output_layer" in name]:
            weights.pop(name) if name.endswith("/bias") else None

    change(run, remove)
    weights, _ = imported()
    assert "softmax_bias" not in weights and not [
        name for name in weights if name.endswith("output_bias")
    ]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda run: shutil.rmtree(run), ["--opennmt_tf=run"]),
        (lambda run: (run / "ckpt-2000.index").unlink(), ["run", "ckpt"]),
        (lambda run: (run / "ckpt-2000.data-00000-of-00001").write_bytes(b"?"), ["run/ckpt-2000"]),
        (lambda run: (run / "model_description.py").unlink(), ["run/model_description.py"]),
        (
            lambda run: (run / "model_description.py").write_text("m = Transformer(num_heads=3)"),
            ["num_heads=3"],
        ),
        (lambda run: (run / "sp.model").unlink(), ["run/sp.model"]),
        (lambda run: (run / "sp.model").write_bytes(b"?"), ["run/sp.model"]),
        (lambda run: (run / "sp.vocab").unlink(), ["run/sp.vocab"]),
        (lambda run: shutil.copy(run / "en.vocab", run / "sp.vocab"), ["run/sp.vocab", "36", "91"]),
        (lambda run: (run / "sp.vocab").write_text("<s>\n</s>\na\n"), ["run/sp.vocab", "<blank>"]),
        (
            lambda run: change(run, lambda weights: weights.update({"model/x/kernel": np.ones(2)})),
            ["ckpt-2000", "/x,"],
        ),
        (
            lambda run: change(run, lambda weights: weights.pop("model/decoder/layer_norm/beta")),
            ["decoder/norm/bias"],
        ),
    ],
)
def test_a_training_that_cannot_be_imported_is_refused(
    damage: Callable[[Path], object], words: list[str], run: Path
) -> None:
    damage(run)
    message = programs.error("import", *FLAGS)
    assert all(word in message for word in words) and not Path("new").exists()


def test_flags_without_effect_and_different_vocabularies_of_a_shared_table_are_refused(
    run: Path,
) -> None:
    pieces = (run / "sp.vocab").read_text("utf-8").splitlines()
    (run / "other.vocab").write_text("\n".join([*pieces[:-1], "zzz", ""]), "utf-8")
    assert "one --vocab" in programs.error("import", *FLAGS, "--source_vocab=run/other.vocab")
    assert "--problem" in programs.error("import", *FLAGS, "--problem=x")
    assert "--sentencepiece_model" in programs.error("import", "--t2t_model=run", *FLAGS[2:])
