"""Trains a model: t2t-trainer --problem=P --hparams_set=H

All other flags have defaults. If the problem's data does not exist and needs no download, the
program generates it first. If training stops early, the same command resumes it. Differences from
tensor2tensor:

  batch_size      (in --hparams) counts the target tokens of a step over all devices, not the
                  positions on each device
  --eval_steps=0  evaluates the whole dev split
  --hparams_set   also selects the model; --model overrides it
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from t2t_repro import registry
from t2t_repro.bin import program
from t2t_repro.checkpoints.reader import checkpoints_in, step_of
from t2t_repro.console.progress import say
from t2t_repro.data import datagen
from t2t_repro.data.dataset import (
    Data,
    datagen_command,
    foreign_format,
    has_description,
    load_data,
    missing_data,
)
from t2t_repro.data.job import Options
from t2t_repro.data.vocabularies.tags import language_of
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams, assignments, check_schedule, traits
from t2t_repro.training.config import RunConfig

if TYPE_CHECKING:
    from t2t_repro.checkpoints.model_folder import ModelFolder
    from t2t_repro.training.preparation import Prepared


@dataclass(frozen=True)
class Flags:
    """The flags that are not settings of `RunConfig`."""

    hparams_set: str = ""
    """Name of a set of model sizes and training settings; --registry_help lists the names;
    transformer_base and transformer_big are the paper's, and tensor2tensor's are
    transformer_base_v3 and transformer_big_v3.
    """
    hparams: str = ""
    """Changes to the hparams set, e.g. "hidden_size=256,label_smoothing=0.0"."""
    output_dir: str = ""
    """The model folder; default: t2t_train/PROBLEM-HPARAMS_SET."""
    intra_op_parallelism_threads: int = field(default=0, metadata={"upper_bound": 4096})
    """CPU threads per operation; 1 is fastest for small models; 0: automatic."""
    inter_op_parallelism_threads: int = field(default=0, metadata={"upper_bound": 4096})
    """Number of operations that may run at the same time; 0: automatic."""
    random_seed: int = field(default=1, metadata={"upper_bound": 2**32 - 1})
    """Seed of the initial weights, the order of the data and dropout."""
    dry_run: bool = False
    """Print the number of steps, the learning rates, the micro-batches, and the disk space that the
    training needs, without training.
    """
    generate_data: bool = False
    """Generate the data again before training; as t2t-datagen --overwrite, this replaces the
    problem's data in --data_dir, even if it is from other text or settings.
    """


HPARAM_FLAGS = {flag: name for name in vars(HParams()) if (flag := traits(HParams, name).flag)}
"""Names of the hparams that have a flag of their own, by flag."""


def make_flags(*names: str) -> flags.FlagValues:
    """Returns all flags of a training run, and the shared flags `names`."""
    values = program.make_flags(Flags, RunConfig, "problem", "data_dir", "tmp_dir", *names)
    meanings = program.field_help(HParams)
    for flag, name in HPARAM_FLAGS.items():
        help = f"{meanings[name]} (default: {name} of the hparams set)"
        flags.DEFINE_string(flag, "", help, flag_values=values)
    return values


FLAGS = make_flags()


def main(values: flags.FlagValues) -> None:
    hparams = read_hparams(values)
    if run := train(values, hparams, open_data(values)):
        best = values.max_checkpoints_by_score
        say(next_commands(run.folder, not run.model.missing_methods, values.t2t_usr_dir, best))


def read_hparams(values: flags.FlagValues) -> HParams:
    """Returns the hparams set that --hparams_set names, with the changes that the other flags
    request.

    Raises UserError if a required flag is missing, or a name or value is wrong.
    """
    program.require(values, "problem", "data_dir", "hparams_set")
    program.refuse_useless(values, {"with --dry_run": ("generate_data",)})
    texts = assignments(values.hparams)
    for flag, name in HPARAM_FLAGS.items():
        if values[flag].present:
            if name in texts:
                raise UserError(f"--{flag} is also given in --hparams; give it once")
            texts[name] = values[flag].value
    hparams = registry.override_hparams(registry.hparams(values.hparams_set), texts)
    check_schedule(hparams)
    return hparams


def open_data(values: flags.FlagValues) -> Data:
    """Opens the data. First generates the data for --generate_data, or if the data is missing and
    needs no download.

    Raises UserError if the data is missing or damaged, or was made with other settings than
    the flags say.
    """
    foreign = foreign_format(values.data_dir, values.problem)
    is_missing = not foreign and not has_description(values.data_dir, values.problem)
    if values.generate_data and foreign:
        raise UserError(
            f"--generate_data: {values.data_dir} has data that {foreign.program} generated, which "
            "this flag would replace; omit the flag to train on that data, or run t2t-datagen "
            "--overwrite"
        )
    if values.generate_data or is_missing:
        _generate_data(values)
    data = load_data(values.data_dir, values.problem)
    for name, value in program.problem_settings(values).items():
        data_value = getattr(data.problem.settings, name)
        if data_value != value:
            raise UserError(
                f"--{name}={value}: the data in {values.data_dir} was made with "
                f"--{name}={data_value}; omit the flag, or generate other data with t2t-datagen "
                "in another --data_dir"
            )
    return data


def _generate_data(values: flags.FlagValues) -> None:
    problem = program.problem(values)
    tmp_dir = values.tmp_dir if values["tmp_dir"].present else ""
    if not values.generate_data and (values.dry_run or not problem.is_self_contained):
        raise missing_data(values.data_dir, problem, tmp_dir)
    if os.environ.get("TF_CONFIG"):
        raise UserError(
            "TF_CONFIG is set, and several workers must not generate the data at the same "
            f"time; run {datagen_command(values.data_dir, problem, tmp_dir)}"
        )
    options = Options(overwrite=values.generate_data)
    datagen.generate_data(problem, values.data_dir, values.tmp_dir, options)


def output_dir(values: flags.FlagValues) -> str:
    return values.output_dir or f"t2t_train/{values.problem}-{values.hparams_set}"


def train(values: flags.FlagValues, hparams: HParams, data: Data) -> Prepared | None:
    """Trains as the flags say. Returns the run; None after a dry run, and in workers other than the
    chief.
    """
    program.load_tensorflow()
    from t2t_repro import devices
    from t2t_repro.training import loop
    from t2t_repro.training.distribution import make_strategy
    from t2t_repro.training.dry_run import dry_run
    from t2t_repro.training.run import Run
    from t2t_repro.visualization.attention_picture import dev_picture

    devices.keep_freed_memory()
    devices.set_threads(values.intra_op_parallelism_threads, values.inter_op_parallelism_threads)
    config = program.from_flags(RunConfig, values)
    if values.dry_run:
        print(dry_run(data, hparams, values.random_seed, config))
        return None
    path = output_dir(values)
    if any(step_of(checkpoint) >= hparams.train_steps for checkpoint in checkpoints_in(Path(path))):
        devices.let_memory_grow()  # all steps are done, so take only the GPU memory that is needed
    strategy = make_strategy(config.worker_gpu)
    return loop.train(Run(path, data, hparams, values.random_seed, config, strategy, dev_picture))


def next_commands(folder: ModelFolder, can_decode: bool, t2t_usr_dir: str, best: int = 0) -> str:
    """Returns the message that ends the run: the best checkpoint, if any, and the next commands.

    `best` is the value of --max_checkpoints_by_score.
    """
    flag = f"--output_dir={shlex.quote(str(folder.path))}"
    if t2t_usr_dir:
        flag += f" --t2t_usr_dir={shlex.quote(t2t_usr_dir)}"
    commands = [
        f"best checkpoint on the dev split: --checkpoint_path={shlex.quote(path)}"
        for path in checkpoints_in(folder.path / "best")[-1:]
    ]
    average = f"t2t-avg-checkpoints {flag}"
    if 1 < best <= len(folder.checkpoints()):
        commands.append(f"to average the best checkpoints: {average} --num_best_checkpoints={best}")
    if folder.hparams.num_last_checkpoints > 1:
        commands.append(f"to average the last checkpoints: {average}")
    language = f" --target_language={language_of(folder.tags[0])}" if folder.tags else ""
    decoder = f"t2t-decoder {flag}{language}"
    if can_decode:
        commands.append(f"to decode: {decoder} --decode_from_file=INPUT --decode_to_file=OUTPUT")
    else:
        commands.append(f"to score: {decoder} --score_file=PAIRS")
    return "\n".join(commands)


run = program.entry_point(main, FLAGS, __doc__)
