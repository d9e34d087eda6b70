"""A training from its first step, or from its last checkpoint, to its end."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from t2t_repro import registry
from t2t_repro.data.datagen import load_problem
from t2t_repro.data.pipeline import Pipeline
from t2t_repro.data.records import Records, find_shards
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams
from t2t_repro.model_folder import ModelFolder, Origin
from t2t_repro.progress import Progress, say
from t2t_repro.training.checkpoint import Checkpoints
from t2t_repro.training.evaluation import Evaluator
from t2t_repro.training.metrics_log import MetricsLog
from t2t_repro.training.step import TrainStep, adam


@dataclass(frozen=True)
class RunConfig:
    """What a training does besides learning; hparams and the random seed say what is learned."""

    local_eval_frequency: int = 1500
    """Steps between two checkpoints, each followed by an evaluation on the dev split."""
    eval_steps: int = 0
    """Batches of an evaluation; 0 is the whole dev split."""
    keep_checkpoint_max: int = 20
    """Checkpoints that stay."""
    max_tokens_per_replica: int = 4096
    """Positions, padding included, of a part; a device holds two parts at most at once."""
    precision: str = "float32"
    """float32, or mixed_bfloat16 for matrix products in bfloat16."""


def train(
    output_dir: str, data_dir: str, problem_name: str, hparams: HParams, random_seed: int, config: RunConfig
) -> ModelFolder:
    """Trains a model until `hparams.train_steps`, from the folder's latest checkpoint if there is one.

    Args:
        output_dir: the model folder; made if it is not there.
        data_dir: what t2t-datagen made.
        problem_name: what to learn, with "_rev" for the other direction.
        hparams: how to learn.
        random_seed: decides initial weights, the order of the data and dropout.
        config: how often to save and evaluate, and what fits the devices.

    Returns:
        The model folder.

    Raises:
        UserError: data missing or damaged, no pair short enough, a folder of another training, or a full disk.
    """
    problem, vocabulary, description = load_problem(data_dir, problem_name)
    records = {
        split: Records(find_shards(data_dir, description.problem, split), problem.was_reversed)
        for split in ("train", "dev")
    }
    for split, found in records.items():
        if len(found) != description.pairs[split]:
            raise UserError(
                f"{data_dir}: its {split} shards hold {len(found):,} pairs, its description says "
                f"{description.pairs[split]:,}; run t2t-datagen again"
            )
    strategy = tf.distribute.MirroredStrategy()
    replicas = strategy.num_replicas_in_sync
    pipeline = Pipeline(
        records["train"], hparams.batch_size, hparams.max_length, random_seed, config.max_tokens_per_replica, replicas
    )
    origin = Origin(problem.name, description.settings, description.vocabulary, description.fingerprint, random_seed)
    folder = ModelFolder.create(output_dir, hparams, vocabulary, origin)
    keras.utils.set_random_seed(random_seed)
    with strategy.scope():
        model = registry.model(hparams.model)(hparams, vocabulary.size, problem.target_space_id, config.precision)
        optimizer = adam(hparams)
    step_function = TrainStep(model, optimizer, hparams.label_smoothing, strategy)
    checkpoints = Checkpoints(folder, model, optimizer, random_seed, config.keep_checkpoint_max)
    evaluator = Evaluator(model, records["dev"], config.max_tokens_per_replica, config.eval_steps)

    parameters = sum(int(variable.value.shape.num_elements()) for variable in model.trainable_variables)
    left_out = f", {pipeline.too_long:,} longer than {hparams.max_length} tokens left out" if pipeline.too_long else ""
    say(
        f"{problem.name}: {len(records['train']):,} pairs{left_out}, {pipeline.steps_per_epoch:,} steps an epoch; "
        f"{hparams.model}: {parameters:,} parameters; {replicas} x {strategy.extended.worker_devices[0][-5:]}, "
        f"{config.precision}"
    )
    start = checkpoints.restore()
    log, hardware = MetricsLog(folder.path, start), devices()
    began = time.monotonic()

    def evaluate(step: int) -> str:
        """Measures the dev split, logs what it measured and returns it for people."""
        result = evaluator()
        log.add(step, dev_loss=result.loss, dev_perplexity=result.perplexity)
        return f"dev loss {result.loss:.4f}, dev perplexity {result.perplexity:.3f} a token"

    if start > log.evaluated:  # killed after a checkpoint and before its evaluation
        say(f"step {start:,}: {evaluate(start)}")
    if start >= hparams.train_steps:
        say(f"{folder.path}: has taken {start:,} steps already; a higher --train_steps goes on")
        return folder
    if start:
        say(f"{folder.path}: going on after step {start:,}")
    progress = Progress("training", hparams.train_steps, "steps", done=start)
    speed = Speed()
    loss: Any = None
    for batch in pipeline.batches(start, hparams.train_steps):
        loss = step_function(batch.parts, batch.target_tokens, (random_seed, batch.step))
        taken = batch.step + 1
        speed.count(batch)
        note = ""
        if taken % 10 == 0:
            note = f"loss {float(loss):.3f}, {speed.tokens_per_second:,.0f} target tokens/s"
        progress.advance(note=note)
        if taken % config.local_eval_frequency == 0 or taken == hparams.train_steps:
            paused = time.monotonic()
            log.add(
                taken,
                seconds=log.seconds + paused - began,
                train_loss=float(loss),
                learning_rate=float(optimizer.learning_rate),
                hardware=hardware[0],
                gpu_count=len(hardware),
            )
            path = checkpoints.save(taken)
            say(
                f"step {taken:,}: train loss {float(loss):.3f} (smoothed), {evaluate(taken)}; "
                f"padding {speed.padding:.1%}; saved {path}"
            )
            speed.pause(time.monotonic() - paused)
    progress.close()
    return folder


def devices() -> list[str]:
    """The names of this machine's GPUs, or of its processor where it has none."""
    if gpus := tf.config.list_physical_devices("GPU"):
        return [tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name) for gpu in gpus]
    processor = platform.processor() or platform.machine()
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        processor = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), processor)
    return [f"{processor}, {os.cpu_count()} cores"]


class Speed:
    """Target tokens a second, and the share of positions that were padding."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._tokens = self._positions = self._filled = 0

    def count(self, batch: Any) -> None:
        """Counts a batch that was trained on."""
        if self._began is None:
            self._began = time.monotonic()  # after the first step, which builds the graph
        else:
            self._tokens += batch.target_tokens
        self._positions += sum(inputs.size + targets.size for inputs, targets in batch.parts)
        self._filled += batch.source_tokens + batch.target_tokens

    def pause(self, seconds: float) -> None:
        """Leaves out seconds in which nothing was trained."""
        if self._began is not None:
            self._began += seconds

    @property
    def tokens_per_second(self) -> float:
        """Since the first step."""
        return self._tokens / max(time.monotonic() - (self._began or time.monotonic()), 1e-9)

    @property
    def padding(self) -> float:
        """Share of source and target positions, 0 .. 1."""
        return 1.0 - self._filled / max(self._positions, 1)
