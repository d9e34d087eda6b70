"""Trains a model of table2_small.py in PyTorch, to see whether our implementation is why it learns
slowly.

    python benchmarks/table2_small_pytorch.py --work=FOLDER [--family=bytenet_tiny] [--results=FILE]

FOLDER is the work folder of table2_small.py, with its data. Data, batches, schedule, number of
epochs and the average of the last checkpoints are the same. Deep-Att trains in float32, because
PyTorch's mixed precision has states of LSTMs in bfloat16. The initial weights are PyTorch's, except
those of the embeddings, so there are short trials only for the learning rate; then a full run with
each seed. To score a run, the script copies its weights into our model, and translates with beam
search; it first checks that both models compute the same logits. It writes each run to the results
file, by default pytorch.json in the work folder, skips runs that this file has, and continues an
interrupted run from its last epoch. It needs `pip install ".[benchmarks]"`.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch._dynamo  # isort: skip  # before TensorFlow; otherwise their two copies of LLVM end the process

import numpy as np
import sacrebleu
import torch
from absl import app, flags

import learning
import pytorch_bytenet
import pytorch_deep_att
import table2_small as table2
from pytorch_transformer import PyTorchRun
from results import Results
from t2t_repro import registry
from t2t_repro.data.pipeline import Pipeline, batches_once
from t2t_repro.data.records import Records, find_shards
from t2t_repro.data.vocabularies.kinds import load_vocabulary
from t2t_repro.decoding import Translator
from t2t_repro.hparam import DecodeHParams, override
from t2t_repro.models.model import make_model

MODELS: dict[str, Any] = {
    "deep_att_tiny": pytorch_deep_att.Model,
    "bytenet_tiny": pytorch_bytenet.Model,
}
FAMILY = flags.DEFINE_enum("family", "deep_att_tiny", list(MODELS), "hparams set")


def best(lines: list[dict[str, Any]]) -> int:
    """Returns the number of the epoch, counted from 1, with the lowest dev loss; 0 before the
    first.
    """
    losses = [line["loss"] for line in lines]
    return 1 + losses.index(min(losses)) if losses else 0


def train(
    settings: table2.Settings, seed: str, epochs: int, path: Path
) -> tuple[list[dict[str, Any]], list[dict]]:
    """Trains until the dev loss has not fallen for PATIENCE epochs, at most `epochs`. Saves each
    epoch in `path`.

    Returns the measurements after each epoch, and the weights of our model after each of the last
    CHECKPOINTS epochs.
    """
    hparams = override(registry.hparams(FAMILY.value), table2.overrides(settings))
    train, dev = (
        Records(find_shards(f"{table2.WORK.value}/data", "text_files", split))
        for split in ("train", "dev")
    )
    micro_batches = list(batches_once(dev, learning.EVAL_TOKENS))
    pipeline = Pipeline(train, hparams, int(seed), learning.EVAL_TOKENS, replicas=1)
    make = functools.partial(MODELS[FAMILY.value], hparams, table2.VOCAB_SIZE)
    run = PyTorchRun(make, hparams, int(seed), is_mixed="deep_att" not in FAMILY.value)
    lines: list[dict[str, Any]] = []
    checkpoints: list[dict[str, np.ndarray]] = []
    if path.exists():
        run, lines, checkpoints = torch.load(path, weights_only=False)
    while (epoch := len(lines)) < epochs and epoch - best(lines) < table2.PATIENCE:
        # For the same dropout masks in a run that was interrupted.
        torch.manual_seed(1000 * int(seed) + epoch)
        for batch in pipeline.batches(epoch * table2.EPOCH, (epoch + 1) * table2.EPOCH):
            run.take_step(batch)
        lines.append({"step": (epoch + 1) * table2.EPOCH, **learning.measured(run, micro_batches)})
        checkpoints = [*checkpoints, run.model.weights()][-table2.CHECKPOINTS :]
        torch.save((run, lines, checkpoints), f"{path}.tmp")
        Path(f"{path}.tmp").replace(path)
        print(path.name, lines[-1], flush=True)
    return lines, checkpoints


def translator(weights: dict[str, np.ndarray]) -> Translator:
    """Returns a translator with our model and these weights."""
    model = make_model(registry.hparams(FAMILY.value), table2.VOCAB_SIZE)
    for weight in model.trainable_variables:
        weight.assign(weights[weight.path])
    vocabulary = load_vocabulary(
        f"{table2.WORK.value}/data/vocab.text_files.{table2.VOCAB_SIZE}.model"
    )
    return Translator(model, vocabulary, DecodeHParams(alpha=1.0))


def check_equal() -> None:
    """Raises AssertionError if a PyTorch model and our model with its weights do not compute the
    same logits.
    """
    model = MODELS[FAMILY.value](registry.hparams(FAMILY.value), table2.VOCAB_SIZE).eval()
    random = np.random.default_rng(1)
    for parameter in model.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))  # so that no bias is 0
    sources, targets = (random.integers(1, table2.VOCAB_SIZE, (3, length)) for length in (7, 12))
    sources[1, 4:] = 0
    logits = model(*map(torch.from_numpy, (sources, targets))).detach().numpy()
    np.testing.assert_allclose(
        translator(model.weights()).model(sources, targets), logits, atol=1e-3
    )


def bleu(ours: Translator, split: str) -> float:
    """Returns the BLEU of a translator on a split."""
    sources, references = (
        Path(table2.text_file(split, side)).read_text("utf-8").splitlines() for side in ("en", "de")
    )
    translations = [translation.text for translation in ours.translate(sources)]
    return round(sacrebleu.corpus_bleu(translations, [references]).score, 2)


def full_run(settings: table2.Settings, seed: str, path: Path) -> dict[str, Any]:
    """Takes a full run. Returns the lowest dev loss, the BLEU of the average on both splits, and
    each epoch.
    """
    lines, checkpoints = train(settings, seed, table2.EPOCHS, path)
    ours = translator(
        {
            name: np.mean([weights[name] for weights in checkpoints], axis=0)
            for name in checkpoints[0]
        }
    )
    scores = {split.split("_")[0]: bleu(ours, split) for split in ("val", "test_2016_flickr")}
    return {"loss": min(line["loss"] for line in lines), **scores, "curve": lines}


def main(argv: list[str]) -> None:
    """Takes all runs that the results file does not have, and prints their losses and scores."""
    if not table2.WORK.value:
        raise app.UsageError("give --work, the work folder of table2_small.py")
    check_equal()
    results = Results(table2.RESULTS.value or Path(table2.WORK.value) / "pytorch.json")

    def measured(take: Any, settings: table2.Settings, seed: str = "") -> Any:
        name = table2.run_name(f"PyTorch {FAMILY.value}", settings, seed)
        return results.measure(
            name, functools.partial(take, Path(table2.WORK.value) / f"{name}.pt")
        )

    def loss(settings: table2.Settings) -> float:
        return measured(
            lambda path: train(settings, table2.SEEDS[0], table2.TRIAL_EPOCHS, path)[0][-1]["loss"],
            settings,
        )

    settings = min((table2.Settings(rate=rate) for rate in table2.RATES), key=loss)
    for seed in table2.SEEDS:
        run = measured(functools.partial(full_run, settings, seed), settings, seed)
        print(f"seed {seed}: dev loss {run['loss']}, BLEU val {run['val']}, test {run['test']}")


if __name__ == "__main__":
    app.run(main)
