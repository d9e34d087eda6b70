"""Tests that a dry run describes the batches that the training run uses."""

from dataclasses import replace

import numpy as np
import pytest

from models import weights_of, write_checkpoint
from shards import write_shard
from t2t_repro import devices, registry
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.data import batching
from t2t_repro.data.dataset import Data
from t2t_repro.data.pipeline import Pipeline
from t2t_repro.data.records import Records, shard_path
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.hparam import HParams
from t2t_repro.models import variants
from t2t_repro.training import dry_run
from t2t_repro.training.config import RunConfig
from t2t_repro.training.schedule import Schedule
from user_errors import user_error

HPARAMS = HParams(batch_size=300, max_length=14, train_steps=1000)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    """Returns records of 500 pairs with 2 to 9 source tokens and 4 to 18 target tokens. Most pairs
    are short.
    """
    random = np.random.default_rng(0)
    path = shard_path(tmp_path_factory.mktemp("data"), "toy", "train", 0, 1)
    sides = np.array([[2], [4]]) + random.binomial([[7], [14]], random.uniform(0.1, 0.7, 500))
    write_shard(path, [([5] * source, [6] * target) for source, target in sides.T.tolist()])
    return Records([path])


def described(
    records: Records, max_tokens: int, replicas: int = 1, hparams: HParams = HPARAMS
) -> dict[str, str]:
    return dry_run.facts_of(Pipeline(records, hparams, 1, max_tokens, replicas), hparams)


@pytest.mark.parametrize(
    ("max_tokens", "replicas", "counted"), [(60, 1, 0), (100, 2, 0), (60, 1, 3)]
)
def test_the_facts_describe_the_batches_of_the_first_epoch(
    max_tokens: int, replicas: int, counted: int, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline(records, HPARAMS, 1, max_tokens, replicas)
    epoch = list(pipeline.batches(0, pipeline.steps_per_epoch))
    examples = sum(len(inputs) for batch in epoch for inputs, *_ in batch.micro_batches)
    tokens = [batch.target_tokens for batch in epoch]
    assert 0 < examples < 500 and min(tokens) < max(tokens)
    part = epoch
    sample = ""
    if counted:
        monkeypatch.setattr(batching, "COUNTED_STEPS", counted)
        part = epoch[:counted]
        sample = f" of the first {counted} steps"
    sides = [
        ids for batch in part for micro_batch in batch.micro_batches for ids in micro_batch[:2]
    ]
    padding = 1 - sum(map(np.count_nonzero, sides)) / sum(ids.size for ids in sides)
    counts = [len(batch.micro_batches) for batch in part]
    assert described(records, max_tokens, replicas) == {
        "examples": f"{examples} an epoch; {500 - examples} longer than 14 tokens are skipped",
        "steps": f"{len(epoch)} an epoch; 1,000 in {1000 / len(epoch):.1f} epochs",
        "target tokens a step": f"{min(tokens)} to {max(tokens)}, {np.mean(tokens):.0f} on average",
        "learning rate": "at most 0.000175 (step 1,000); 0.000175 at the last step (1,000)",
        "padding": f"{padding:.1%} of all positions{sample}",
        "micro-batches a step": (
            f"{min(counts)} to {max(counts)}, {np.mean(counts):.1f} on average{sample}; the "
            f"largest has {max(ids.size for ids in sides)} of at most {max_tokens:,} positions "
            "(--max_tokens_per_replica)"
        ),
    }


WARMED_UP = "constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size"


@pytest.mark.parametrize(
    ("schedule", "train_steps", "step"),
    [
        ("constant*noam", 100_000, "4,000"),
        (WARMED_UP, 100_000, "4,001"),
        (WARMED_UP, 50, "50"),
        ("constant*linear_decay", 5000, "1"),
    ],
)
def test_the_learning_rates_are_those_of_the_schedule(
    schedule: str, train_steps: int, step: str, records: Records
) -> None:
    hparams = replace(HPARAMS, learning_rate_schedule=schedule, train_steps=train_steps)
    rates = Schedule(hparams)(np.arange(train_steps)).numpy()
    expected = (
        f"at most {rates.max():.3g} (step {step}); {rates[-1]:.3g} at the last step "
        f"({train_steps:,})"
    )
    assert described(records, 10_000, hparams=hparams)["learning rate"] == expected


def test_a_dry_run_counts_parameters_checks_the_warm_start_and_uses_no_gpu(
    tiny_hparams: HParams, tiny_vocabulary: Vocabulary, records: Records, folder: ModelFolder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """TensorFlow would allocate all visible GPUs' memory when it computes the learning rates."""
    order: list[str] = []
    monkeypatch.setattr(devices, "hide_gpus", lambda: order.append("hidden"))
    monkeypatch.setattr(dry_run, "learning_rates", lambda hparams: order.append("computed") or "")
    data = Data(registry.problem("numbers_ende"), tiny_vocabulary, None, {"train": records}, "")
    hparams = replace(tiny_hparams, train_steps=3000, local_eval_frequency=1000)
    model = variants.transformer(hparams, tiny_vocabulary.size)
    write_checkpoint(folder.path, 3, weights_of(model), tiny_vocabulary.fingerprint)
    config = RunConfig(keep_checkpoint_max=4, warm_start_from=str(folder.path))
    text = dry_run.dry_run(data, hparams, 1, config)
    assert order[:2] == ["hidden", "computed"]
    parameters = sum(variable.value.numpy().size for variable in model.trainable_variables)
    assert f"transformer, {parameters:,} parameters\n" in text and ", float32\n" in text
    assert f"{(12 * 5 + 4) * parameters / 1e9:.2g} GB for 3 latest checkpoints" in text
    assert "\nwarning: --keep_checkpoint_max=4 keeps fewer" in text
    wider = replace(hparams, hidden_size=32)
    assert f"{folder.path}/model.ckpt-3: weight " in user_error(
        dry_run.dry_run, data, wider, 1, config
    )
    frozen = dry_run.dry_run(data, replace(hparams, frozen="embedding/"), 1, config)
    assert (
        f"{parameters:,} parameters, {model.embedding.table.value.numpy().size:,} of them frozen\n"
        in frozen
    )
    assert "'encodr'" in user_error(
        dry_run.dry_run, data, replace(hparams, frozen="encodr"), 1, config
    )
