"""Trains a model: t2t-trainer --problem=P --hparams_set=H

Everything else has a default. Data that is not there yet is generated first where that needs no download. The same
command goes on where an earlier run stopped. What is where tensor2tensor's differs:

  --batch_size (in --hparams) counts the target tokens of a step over all devices, not the positions on each.
  --eval_steps=0 evaluates the whole dev split.
  --hparams_set names the model too; --model is for others.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import TYPE_CHECKING

from absl import flags

from t2t_repro import registry
from t2t_repro.bin import program
from t2t_repro.errors import UserError
from t2t_repro.hparam import override
from t2t_repro.progress import say

if TYPE_CHECKING:
    from t2t_repro.model_folder import ModelFolder


def define_flags(values: flags.FlagValues) -> None:
    """Defines all flags of a training."""
    program.define_problem(values)
    flags.DEFINE_string("hparams_set", "", "how to learn; --registry_help lists the names", flag_values=values)
    flags.DEFINE_string(
        "hparams", "", 'overrides of the set: "hidden_size=256,label_smoothing=0.0"', flag_values=values
    )
    flags.DEFINE_string("model", "", "model to train in place of the hparams set's", flag_values=values)
    flags.DEFINE_string(
        "output_dir", "", "the model folder; default: t2t_train/PROBLEM-HPARAMS_SET", flag_values=values
    )
    for name, default, text in (
        ("train_steps", 0, "steps in all; 0: the hparams set's own number"),
        ("local_eval_frequency", 0, "steps between two evaluations; 0: the hparams set's own number"),
        ("eval_steps", 0, "batches of which each evaluation takes the loss; 0: the whole dev split"),
        (
            "eval_decode_lines",
            200,
            "lines of the dev split that each evaluation decodes and scores, which takes its time; 0: none",
        ),
        ("early_stopping_patience", 0, "evaluations without a lower dev loss after which training ends; 0: never"),
        (
            "save_checkpoints_secs",
            0,
            "seconds between two checkpoints, 600 for the paper's ten minutes; 0: one with each evaluation",
        ),
        ("keep_checkpoint_max", 20, "checkpoints that are kept"),
        ("log_step_count_steps", 100, "steps between two lines in metrics.jsonl and points in TensorBoard's curves"),
        ("worker_gpu", 0, "GPUs to use of each machine; 0: all; changes speed, memory and what dropout draws"),
        (
            "max_tokens_per_replica",
            4096,
            "positions in a micro-batch, with padding; a replica computes two micro-batches at a time at most; affects "
            "speed, memory and which elements dropout drops",
        ),
    ):
        flags.DEFINE_integer(name, default, text, flag_values=values)
    flags.DEFINE_enum(
        "precision",
        "float32",
        ["float32", "mixed_bfloat16", "mixed_float16"],
        "mixed_bfloat16: matrix products in bfloat16, faster where the processor has it; mixed_float16: in float16, "
        "with loss scaling, for GPUs that have no bfloat16",
        flag_values=values,
    )
    flags.DEFINE_string(
        "warm_start_from",
        "",
        "model folder or checkpoint with the first weights, made with the same vocabulary and sizes",
        flag_values=values,
    )
    flags.DEFINE_bool(
        "dry_run", False, "say what would be trained, in what steps, in how much memory, and stop", flag_values=values
    )
    for kind, meaning in (
        ("intra", "within an operation; 1 is the cheapest for small models"),
        ("inter", "side by side"),
    ):
        flags.DEFINE_integer(
            f"{kind}_op_parallelism_threads", 0, f"CPU threads {meaning}; 0: TensorFlow chooses", flag_values=values
        )
    flags.DEFINE_integer("random_seed", 1, "decides initial weights, order of the data and dropout", flag_values=values)
    flags.DEFINE_bool("generate_data", False, "generate the data anew before training", flag_values=values)


FLAGS = flags.FlagValues()
define_flags(FLAGS)


def main(values: flags.FlagValues) -> None:
    """Reads the flags and trains."""
    folder = train(values)
    if folder:
        from t2t_repro.training.loop import what_next

        say(what_next(folder, values.t2t_usr_dir))


def train(values: flags.FlagValues) -> ModelFolder | None:
    """Sees to the data and trains as the flags say; returns the model folder.

    None after a dry run, and in workers other than the chief.
    """
    program.require(values, "problem", "hparams_set")
    problem = program.problem(values)
    hparams = override(registry.hparams(values.hparams_set), values.hparams)
    if values.model:
        hparams = dataclasses.replace(hparams, model=values.model)
    registry.model(hparams.model)
    for name in ("keep_checkpoint_max", "log_step_count_steps", "max_tokens_per_replica"):
        if values[name].value < 1:
            raise UserError(f"--{name}={values[name].value} must be 1 or more")
    for name in (
        *("train_steps", "local_eval_frequency", "eval_steps", "eval_decode_lines", "early_stopping_patience"),
        *("save_checkpoints_secs", "worker_gpu"),
        *("intra_op_parallelism_threads", "inter_op_parallelism_threads", "random_seed"),
    ):
        if values[name].value < 0:
            raise UserError(f"--{name}={values[name].value} must be 0 or more")
    if values.random_seed >= 2**32:
        raise UserError(f"--random_seed={values.random_seed} must be below 2^32 = {2**32}")
    for name in ("train_steps", "local_eval_frequency"):
        if values[name].value:
            hparams = dataclasses.replace(hparams, **{name: values[name].value})

    from t2t_repro.data import datagen, description

    missing = not description.description_path(values.data_dir, problem.base_name).exists()
    if missing and (values.dry_run or not problem.is_self_contained):
        description.load_description(values.data_dir, problem)  # raises, and names the command that generates
    if values.dry_run and values.generate_data:
        raise UserError("--dry_run writes nothing and is of the data that is there; leave out --generate_data")
    if missing or values.generate_data:
        if os.environ.get("TF_CONFIG"):
            raise UserError(
                "TF_CONFIG: several workers must not generate data side by side; run t2t-datagen "
                f"--problem={values.problem} --data_dir={values.data_dir} before them"
            )
        datagen.generate_data(problem, values.data_dir, values.tmp_dir)
    _refuse_other_settings(values, description.load_description(values.data_dir, problem).settings)

    program.load_tensorflow()
    from t2t_repro import devices
    from t2t_repro.training import loop
    from t2t_repro.training.config import RunConfig

    devices.set_threads(values.intra_op_parallelism_threads, values.inter_op_parallelism_threads)
    given = {field.name: values[field.name].value for field in dataclasses.fields(RunConfig)}
    config = RunConfig(**given | {"local_eval_frequency": hparams.local_eval_frequency})
    output_dir = values.output_dir or f"t2t_train/{problem.name}-{values.hparams_set}"
    arguments = (output_dir, values.data_dir, values.problem, hparams, values.random_seed, config)
    if values.dry_run:
        from t2t_repro.data.dataset import load_data
        from t2t_repro.training.dry_run import dry_run

        data = load_data(values.data_dir, values.problem)
        print(dry_run(data, hparams, values.random_seed, config))
        return None
    return loop.train(*arguments)


def _refuse_other_settings(values: flags.FlagValues, settings: dict) -> None:
    """Raises UserError where a setting is given that is not the one that the data was made with."""
    made_with = registry.problem(values.problem, settings).settings
    for name, value in program.problem_settings(values).items():
        if getattr(made_with, name) != value:
            raise UserError(
                f"--{name}={value}: the data in {values.data_dir} was made with --{name}={getattr(made_with, name)}; "
                "leave the flag out, or make other data by t2t-datagen with another --data_dir"
            )


def run() -> None:
    """The program t2t-trainer."""
    sys.exit(program.run(main, FLAGS, __doc__))


if __name__ == "__main__":
    run()
