"""Describes a run for t2t-trainer --dry_run: its model, steps, micro-batches and disk space.

A dry run trains and writes nothing.
"""

import sys

import numpy as np

from t2t_repro import devices
from t2t_repro.checkpoints.checkpoint import initial_weights
from t2t_repro.console.terminal import definitions, width_of, wrapped
from t2t_repro.data import batching
from t2t_repro.data.dataset import Data
from t2t_repro.data.pipeline import Pipeline
from t2t_repro.errors import counted
from t2t_repro.hparam import HParams
from t2t_repro.models.model import model_without_values, parameter_count
from t2t_repro.training.config import RunConfig
from t2t_repro.training.disk import disk_need, gigabytes, kept_checkpoints
from t2t_repro.training.distribution import count_replicas, workers
from t2t_repro.training.evaluation import refuse_missing_score
from t2t_repro.training.messages import size_text, warnings
from t2t_repro.training.schedule import learning_rates


def dry_run(data: Data, hparams: HParams, random_seed: int, config: RunConfig) -> str:
    """Returns a description of the training run that `train` would start. Does not wait for other
    workers.

    Raises UserError if `train` would refuse the data, the hparams, the warm start or the devices.
    """
    replicas = count_replicas(config.worker_gpu)
    several = f"{workers()} workers, each " if workers() > 1 else ""
    hardware = f"{several}{replicas} x {devices.names()[0]}, {config.precision}"
    width = width_of(sys.stdout)
    warned = [wrapped(f"warning: {text}", width) for text in warnings(hparams, config)]
    devices.hide_gpus()  # a dry run must not allocate their memory
    vocabulary = data.vocabulary
    model = model_without_values(
        hparams, vocabulary.size, source_vocab_size=vocabulary.separate_source_size
    )
    refuse_missing_score(data, config.best_by)
    if config.warm_start_from:
        initial_weights(model, vocabulary, config.warm_start_from)
    pipeline = Pipeline(
        data.records["train"],
        hparams,
        random_seed,
        config.max_tokens_per_replica,
        replicas * workers(),
        vocabulary,
    )
    kind = "latest checkpoint"
    flags = "--keep_checkpoint_max"
    if config.max_checkpoints_by_score:
        kind = "latest or best checkpoint"
        flags += ", --max_checkpoints_by_score"
    kept = counted(kept_checkpoints(hparams, config), kind)
    space = gigabytes(disk_need(parameter_count(model), hparams, config))
    facts = {
        "model": f"{hparams.model}, {size_text(model, hparams.frozen)}",
        "trained on": hardware,
        **facts_of(pipeline, hparams),
        "disk space": (
            f"{space} GB for {kept} ({flags}), the best, the average, and one that is being written"
        ),
    }
    return "\n".join([definitions(facts), *warned])


def facts_of(pipeline: Pipeline, hparams: HParams) -> dict[str, str]:
    """Returns the facts about the steps, the learning rate and the batches, by their labels."""
    plan = pipeline.first_group.plan
    lengths = pipeline.first_group.records.lengths
    steps_per_epoch = pipeline.steps_per_epoch
    epochs = hparams.train_steps / steps_per_epoch
    target_lengths = lengths[1, plan.order]
    tokens_of_blocks = np.add.reduceat(target_lengths, plan.ends[:-1], dtype=np.int64)
    tokens = tokens_of_blocks[plan.shuffle].sum(axis=1)
    steps = batching.first_steps(lengths, plan, pipeline.max_tokens, pipeline.replicas)
    sample = f" of the first {len(steps):,} steps" if len(steps) < plan.steps else ""
    counts = [len(step) for step in steps]
    largest = max(
        len(examples) * int(lengths[:, examples].max(initial=0))
        for step in steps
        for examples in step
    )
    return {
        "examples": (
            f"{pipeline.examples_per_epoch:,} an epoch; {pipeline.too_long:,} longer than "
            f"{hparams.max_length} tokens are skipped"
        ),
        "steps": f"{steps_per_epoch:,} an epoch; {hparams.train_steps:,} in {epochs:,.1f} epochs",
        "target tokens a step": (
            f"{tokens.min():,} to {tokens.max():,}, {tokens.mean():,.0f} on average"
        ),
        "learning rate": learning_rates(hparams),
        "padding": f"{batching.padding(lengths, steps):.1%} of all positions{sample}",
        "micro-batches a step": (
            f"{min(counts):,} to {max(counts):,}, {np.mean(counts):,.1f} on average{sample}; the "
            f"largest has {largest:,} of at most {pipeline.max_tokens:,} positions "
            "(--max_tokens_per_replica)"
        ),
    }
