"""A training from its first step, or from its last checkpoint, to its end."""

from __future__ import annotations

import contextlib
import math
import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from t2t_repro.checkpoint_reader import checkpoints_in, step_of
from t2t_repro.data.dataset import Data, load_data
from t2t_repro.data.pipeline import Batch, Pipeline
from t2t_repro.errors import Stopped, UserError
from t2t_repro.hparam import HParams
from t2t_repro.model_folder import ModelFolder, Origin
from t2t_repro.models.model import as_decoding_model, make_model, parameter_count
from t2t_repro.progress import Progress, say
from t2t_repro.textfile import whole_file
from t2t_repro.training.checkpoint import Checkpoints, warm_start
from t2t_repro.training.checkpoint_files import BEST, delete_unfinished
from t2t_repro.training.config import RunConfig
from t2t_repro.training.distribution import (
    LOST,
    from_chief,
    is_chief,
    lost,
    make_strategy,
    refuse_other_flags,
    refuse_other_weights,
    workers,
)
from t2t_repro.training.evaluation import DevDecoder, Evaluator
from t2t_repro.training.step import LossScale, Result, TrainStep, adam, out_of_memory
from t2t_repro.training.stop import StopSignals
from t2t_repro.training.watch import Speed, Watch
from t2t_repro.visualization.attention import attention_of

EVAL_TOKENS = 4096
"""Positions of a batch of an evaluation, padding included, at most."""

EVAL_BEAM = 4
"""Hypotheses of an evaluation's search, at most: a parser's 21 take their time while it has not learned to end."""

SHARED = "--output_dir must be on a disk that all workers share; if it is, start all again"
"""What to do where one worker does not see what another has written."""


def train(
    output_dir: str, data_dir: str, problem_name: str, hparams: HParams, random_seed: int, config: RunConfig
) -> ModelFolder | None:
    """Trains a model until `hparams.train_steps`, from the folder's latest checkpoint if there is one.

    Args:
        output_dir: the model folder; made if it is not there.
        data_dir: what t2t-datagen made.
        problem_name: what to learn, with "_rev" for the other direction.
        hparams: how to learn.
        random_seed: decides initial weights, the order of the data and dropout.
        config: how often to save and evaluate, and what fits the devices.

    Returns:
        The model folder, in the chief; None in other workers.

    Raises:
        UserError: data missing or damaged, no pair short enough, a folder of another training or one where another is
            at work, a full disk, a loss that is not finite, too little memory, or a worker that was lost.
        Stopped: SIGTERM or SIGINT asked for it.
    """
    strategy = make_strategy(config.worker_gpu)
    data = load_data(data_dir, problem_name)
    training = None
    try:
        with contextlib.ExitStack() as at_end:
            training = Training(strategy, output_dir, data, hparams, random_seed, config, at_end)
            training.run()
    except tf.errors.ResourceExhaustedError as error:
        raise out_of_memory(error, min(config.max_tokens_per_replica, hparams.batch_size)) from None
    except LOST as error:
        if workers() == 1:
            raise
        raise lost(error) from None
    return training.folder if training.chief else None


def what_next(folder: ModelFolder, t2t_usr_dir: str = "") -> str:
    """Where the best model is, and the commands that average and decode, for people.

    Args:
        folder: of a training that has come to its end.
        t2t_usr_dir: where the user's own code is.
    """
    own = f"--output_dir={shlex.quote(str(folder.path))}"
    if t2t_usr_dir:
        own += f" --t2t_usr_dir={shlex.quote(t2t_usr_dir)}"
    best = ", ".join(checkpoints_in(folder.path / BEST))
    return (
        f"the lowest dev loss: --checkpoint_path={best}\naverage and decode:  t2t-avg-checkpoints {own} && "
        f"t2t-decoder {own} --decode_from_file=INPUT --decode_to_file=OUTPUT"
    )


class Training:
    """All that takes part in a training; see `train`.

    Args:
        at_end: what is to be closed when it is over.
    """

    def __init__(
        self,
        strategy: Any,
        output_dir: str,
        data: Data,
        hparams: HParams,
        random_seed: int,
        config: RunConfig,
        at_end: contextlib.ExitStack,
    ) -> None:
        self.hparams, self.config, self.random_seed, self.data = hparams, config, random_seed, data
        self.strategy, self.alone, self.chief = strategy, workers() == 1, is_chief(strategy)
        self._say: Callable[[str], None] = say if self.chief else lambda text: None
        replicas = strategy.num_replicas_in_sync
        self.pipeline = Pipeline(data.records["train"], hparams, random_seed, config.max_tokens_per_replica, replicas)
        refuse_other_flags(
            strategy,
            train_steps=hparams.train_steps,
            local_eval_frequency=config.local_eval_frequency,
            max_tokens_per_replica=config.max_tokens_per_replica,
        )
        self.folder = self._open_folder(output_dir, at_end)
        keras.utils.set_random_seed(random_seed)
        with strategy.scope():
            self.model = self._make_model()
            self.optimizer = adam(hparams)
            loss_scale = LossScale() if config.precision == "mixed_float16" else None
        self.step = TrainStep(self.model, self.optimizer, hparams.label_smoothing, strategy, loss_scale)
        state = [*self.optimizer.variables, *(loss_scale.variables if loss_scale else [])]
        self.checkpoints = Checkpoints(self.folder, self.model, state, config.keep_checkpoint_max)
        self._describe()
        self.start = self._restore()
        refuse_other_weights(strategy, [*self.model.trainable_variables, *state])
        tokens = min(EVAL_TOKENS, config.max_tokens_per_replica)  # more may not fit
        self.evaluator = Evaluator(self.model, data.records["dev"], tokens, config.eval_steps)
        self.decoder = self._make_decoder() if config.eval_decode_lines else None
        self.watch = Watch(self.folder, self.start, workers()) if self.chief else None

    def _open_folder(self, output_dir: str, at_end: contextlib.ExitStack) -> ModelFolder:
        """The model folder, which the chief makes and holds until the end; refused where it is of another training."""
        hparams, vocabulary, description = self.hparams, self.data.vocabulary, self.data.description
        origin = Origin(
            self.data.problem.name, description.settings, description.vocabulary, description.fingerprint,
            self.random_seed, self.config.precision, self.config.warm_start_from,
        )  # fmt: skip
        if self.chief:
            at_end.enter_context(ModelFolder.locked(output_dir))
            self._refuse_to_start_over(Path(output_dir))
            folder = ModelFolder.create(output_dir, hparams, vocabulary, origin)
            delete_unfinished(folder.path)
        from_chief(self.strategy, 0)  # the others come after
        if not self.chief:
            if not (Path(output_dir) / "problem.json").exists():
                raise UserError(f"{output_dir}: the chief has made it, and this worker does not see it: {SHARED}")
            folder = ModelFolder(output_dir)
            folder.refuse_other(hparams, origin, vocabulary)
        return folder

    def _refuse_to_start_over(self, folder: Path) -> None:
        """Raises UserError where a training without checkpoints has left models that a new one would overwrite."""
        # By the clock, the best may come before the first checkpoint.
        places = ["averaged", *([] if self.config.save_checkpoints_secs else [BEST])]
        left = [path for place in places for path in checkpoints_in(folder / place)]
        if left and not checkpoints_in(folder):
            raise UserError(
                f"{folder}: holds {left[0]}, but no checkpoint to go on from; t2t-decoder decodes with it; "
                "to train anew delete that, or give another --output_dir"
            )

    def _make_model(self) -> Any:
        """The model; a new folder goes where none can be made of the hparams."""
        problem, vocabulary = self.data.problem, self.data.vocabulary
        try:
            return make_model(self.hparams, vocabulary.size, problem.target_space_id, self.config.precision)
        except UserError:
            if self.chief:
                self.folder.discard()
            raise

    def _restore(self) -> int:
        """Takes the weights and the state of the latest checkpoint, which the chief chooses; returns its step."""
        start = from_chief(self.strategy, self.checkpoints.restore() if self.chief else 0)
        if start and not self.chief and not self.checkpoints.restore_step(start):
            raise UserError(f"{self.folder.path}: this worker does not see the chief's checkpoint {start:,}: {SHARED}")
        if not start and self.config.warm_start_from:
            source = warm_start(self.model, self.data.vocabulary, self.config.warm_start_from)
            self._say(f"{source}: its weights are the first")
        return start

    def _make_decoder(self) -> DevDecoder:
        """What decodes lines of the dev split in an evaluation.

        Raises:
            UserError: the model cannot decode.
        """
        as_decoding_model(self.model, "give --eval_decode_lines=0")
        problem, lines = self.data.problem, self.config.eval_decode_lines
        search = replace(problem.decode_hparams, beam_size=min(problem.decode_hparams.beam_size, EVAL_BEAM))
        dev, longest = self.data.records["dev"], self.hparams.max_length
        return DevDecoder(self.model, self.data.vocabulary, problem, dev, lines, search, longest)

    def _describe(self) -> None:
        """Says what is about to be trained, on what."""
        too_long, longest = self.pipeline.too_long, self.hparams.max_length
        self._say(
            f"{self.data.problem.name}: {len(self.data.records['train']):,} pairs"
            f"{f', {too_long:,} longer than {longest} tokens left out' if too_long else ''}, "
            f"{self.pipeline.steps_per_epoch:,} steps an epoch; "
            f"{self.hparams.model}: {parameter_count(self.model):,} parameters; "
            f"{self.strategy.num_replicas_in_sync} x {self.strategy.extended.worker_devices[0][-5:]}"
            f"{'' if self.alone else f' of {workers()} workers'}, {self.config.precision}"
        )

    def run(self) -> None:
        """Trains to the end."""
        start, end = self.start, self.hparams.train_steps
        taken, signals = start, StopSignals()
        with signals, contextlib.ExitStack() as at_end:
            if self.watch and start and start not in self.watch.dev_losses and self._evaluates_after(start):
                self._evaluate(start, signals)  # the process ended between the checkpoint and its evaluation
            if start >= end:
                self._say(f"{self.folder.path}: has taken {start:,} steps already; a higher --train_steps goes on")
            elif start:
                self._say(f"{self.folder.path}: going on after step {start:,}")
            enough = bool(from_chief(self.strategy, self._is_enough()))
            if start < end and not enough and not (self.alone and signals.requested):
                progress = Progress("training", end, "steps", done=start) if self.chief else None
                if progress:
                    at_end.callback(progress.close)
                taken = self._take_steps(signals, progress)
                enough = bool(from_chief(self.strategy, self._is_enough()))  # waits for the chief's last checkpoint
        if enough and start < end:
            self._say(
                f"no lower dev loss in {self.config.early_stopping_patience} evaluations: ended after step {taken:,}"
            )
        if signals.requested or (taken < end and not enough):  # asked in the last evaluation, too
            raise Stopped(f"{self.folder.path}: saved after step {taken:,}, as asked; the same command goes on")

    def _evaluates_after(self, taken: int) -> bool:
        return taken % self.config.local_eval_frequency == 0 or taken == self.hparams.train_steps

    def _take_steps(self, signals: StopSignals, progress: Progress | None) -> int:
        """Takes the steps until the last, or until it is to stop; returns how many were taken."""
        end, config, watch = self.hparams.train_steps, self.config, self.watch
        speed = Speed()
        began = saved = time.monotonic()
        taken, running = self.start, None
        for batch in self.pipeline.batches(self.start, end):
            returned = self.step(
                batch.micro_batches, batch.target_tokens, (self.random_seed, batch.step), signals.requested
            )
            taken = batch.step + 1
            speed.count(batch)
            # What a step returned is read while the next one runs, so that a GPU does not wait for Python.
            known = self._read(*running) if running else None
            running = batch, returned
            # Workers must all stop after the same step: each goes by the votes of the step before.
            stops = signals.requested if self.alone else known is not None and known.votes > 0
            evaluates = self._evaluates_after(taken)
            if config.save_checkpoints_secs:
                saves = time.monotonic() - saved >= config.save_checkpoints_secs or taken == end
            else:
                saves = evaluates
            logs = evaluates or taken % config.log_step_count_steps == 0
            if progress:
                note = f"loss {known.loss:.3f}, rate {known.learning_rate:.1e}, {speed}" if known else ""
                progress.advance(note=note)
            if logs or saves or stops:
                known = self._read(*running)
            if logs and watch and known:
                seconds = watch.seconds_before + time.monotonic() - began
                watch.trained(taken, seconds, known, speed)
            paused = time.monotonic()
            if saves or stops:
                if self.chief:
                    # Where the clock decides, each job may end before its first checkpoint is due.
                    self.checkpoints.save(taken, by_request=not saves and not config.save_checkpoints_secs)
                saved = time.monotonic()
            if evaluates and self.chief and not stops:
                self._evaluate(taken, signals)
            enough = evaluates and not stops and from_chief(self.strategy, self._is_enough())
            if enough and not saves and self.chief:
                self.checkpoints.save(taken)
            if evaluates and not stops and self.alone and signals.requested:
                stops = True  # asked in the evaluation
                if not saves and not enough:
                    self.checkpoints.save(taken)
            speed.pause(time.monotonic() - paused)
            if logs:
                speed.restart()
            if stops or enough:
                break
        return taken

    def _read(self, batch: Batch, returned: Any) -> Result:
        """What a step returned.

        Raises:
            UserError: its loss or its gradient is not finite.
        """
        result = TrainStep.read(returned)
        # In float16 single gradients may overflow: the step is left out, and the next ones are scaled less.
        if math.isfinite(result.loss) and (math.isfinite(result.gradient_norm) or result.loss_scale > 1.0):
            return result
        path = self.folder.path / f"not_finite-{batch.step + 1}.tsv"
        places = [self.data.records["train"].locate(number) for number in sorted(batch.examples.tolist())]
        if self.chief:
            with whole_file(path, "w") as file:
                file.writelines(f"{shard}\t{record}\n" for shard, record in places)
        # The weights after the step before may be what is wrong, though its own loss and gradient were finite.
        found = [path for path in self.folder.checkpoints() if step_of(path) < batch.step]
        raise UserError(
            f"step {batch.step + 1:,}: loss {result.loss}, gradient norm {result.gradient_norm}, which is not finite; "
            f"its {len(places):,} examples begin with record {places[0][1]} of {places[0][0]}, and {path} lists them; "
            f"the last good checkpoint is {found[-1] if found else 'none'}; another --output_dir"
            f"{f' with --warm_start_from={found[-1]}' if found else ''}, and a lower learning rate, longer warmup or "
            "--precision=float32 may help"
        )

    def _evaluate(self, step: int, signals: StopSignals) -> None:
        """Measures the dev split and tells of it; keeps the model where it is the best."""
        assert self.watch is not None

        def stops() -> bool:  # several workers have one more step to take, from which this one would not come back
            return self.alone and signals.requested

        try:
            found = self.evaluator(stops)
            decoded = self.decoder(stops) if self.decoder else None
        except Stopped:
            self._say(f"step {step:,}: not evaluated, as asked to stop; the same command does it first")
            return
        scored = f", {decoded.scores[0].label} {decoded.scores[0].score:.2f}" if decoded else ""
        best = min(self.watch.dev_losses.values(), default=math.inf)
        if found.loss < best:
            self.checkpoints.save_best(step)
        if self.model.has_attention:
            self.watch.picture(step, attention_of(self.model, self.data.vocabulary, *self.data.records["dev"][0]))
        self.watch.evaluated(step, found, decoded)  # last: its line in the log says that all of this was done
        self._say(
            f"step {step:,}: dev loss {found.loss:.4f}{' (best)' if found.loss < best else ''}, perplexity "
            f"{found.perplexity:.3f} a token, accuracy {found.accuracy:.1%}{scored}"
        )

    def _is_enough(self) -> bool:
        """Whether the dev loss has not fallen for so many evaluations; known to the chief alone."""
        patience = self.config.early_stopping_patience
        if not (patience and self.watch):
            return False
        losses = list(self.watch.dev_losses.values())
        return bool(losses) and len(losses) - 1 - losses.index(min(losses)) >= patience
