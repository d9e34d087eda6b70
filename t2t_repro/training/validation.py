"""The evaluations of a training run: when it resumes and as it goes on, with its best checkpoints
and early stopping.
"""

from collections.abc import Callable

from t2t_repro.errors import Stopped
from t2t_repro.training import messages
from t2t_repro.training.distribution import from_chief
from t2t_repro.training.due import due_after
from t2t_repro.training.evaluation import Evaluation
from t2t_repro.training.logs import Logs
from t2t_repro.training.preparation import Prepared


class Validation:
    """Evaluates a run's model in the chief, keeps the best checkpoints, and says when the run has
    converged.

    Every worker has its own object and must call its methods. `should_stop` says whether a signal
    asked to interrupt an evaluation.
    """

    def __init__(self, prepared: Prepared, should_stop: Callable[[], bool]) -> None:
        self._run = prepared.run
        self._folder = prepared.folder
        self._model = prepared.model
        self._checkpoints = prepared.checkpoints
        self._evaluator = prepared.evaluator
        self._logs = prepared.logs
        self._should_stop = should_stop
        self.has_converged = False
        """True if early stopping ends the run."""

    def catch_up(self, step: int) -> None:
        """Evaluates the weights of a warm start, or a checkpoint that an earlier process saved but
        did not evaluate.
        """
        run = self._run
        is_due = due_after(step, run.hparams, run.config, seconds=0.0, stops=False).evaluates
        if step == 0:
            is_due = bool(run.config.warm_start_from)
        if self._logs and is_due and not self._logs.metrics.has_evaluation(step):
            self._evaluate(step, self._logs)
        self._follow_evaluations(step)

    def evaluate(self, step: int) -> None:
        """Evaluates the dev split, logs the result, and saves the best checkpoint if it is the
        best.
        """
        if self._logs:
            self._evaluate(step, self._logs)
        self._follow_evaluations(step)

    def _evaluate(self, step: int, logs: Logs) -> None:
        run = self._run
        try:
            evaluation = self._evaluator(self._should_stop)
        except Stopped:
            run.say(
                f"step {step:,}: evaluation interrupted, as requested; the same command evaluates "
                "first"
            )
            return
        is_best = logs.is_best(evaluation)
        if is_best and step:  # a warm start's own checkpoint exists
            self._checkpoints.save_best(step)
        if run.draw_attention and (picture := run.draw_attention(self._model, run.data)):
            logs.tensorboard.image(step, "dev/attention", picture)
        # This log line is written last. If the process is killed before, the next process evaluates
        # this step again.
        logs.evaluation(step, evaluation)
        run.say(f"step {step:,}: {evaluation.describe(is_best, run.config.best_by)}")
        self._warn(step, evaluation)

    def _warn(self, step: int, evaluation: Evaluation) -> None:
        hparams = self._run.hparams
        is_warm = step >= min(hparams.learning_rate_warmup_steps, hparams.train_steps)
        if is_warm and (warning := messages.source_use_warning(evaluation.source_use)):
            self._run.say(warning)

    def _follow_evaluations(self, step: int) -> None:
        """Deletes checkpoints that are no longer among the best. Ends the run if it has converged.

        It has converged if the last `early_stopping_patience` evaluations brought no new best one.
        This depends only on the log, so a run that was killed and resumed does the same.
        """
        config = self._run.config
        has_converged = False
        if self._logs:
            metrics = self._logs.metrics
            if config.max_checkpoints_by_score:
                self._checkpoints.keep_also(metrics.best_steps(config.max_checkpoints_by_score))
            patience = config.early_stopping_patience
            has_converged = 0 < patience <= metrics.evaluations_since_best()
        self.has_converged = bool(from_chief(self._run.strategy, has_converged))
        if self.has_converged:
            self._run.say(messages.has_converged(self._folder, step, config))
