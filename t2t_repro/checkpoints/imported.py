"""A model that another program trained, and its model folder."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from t2t_repro import registry
from t2t_repro.checkpoints.model_folder import ModelFolder, Origin
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.files.output_files import unfinished_folder
from t2t_repro.hparam import HParams
from t2t_repro.problem import Problem


class ImportedModel:
    """A model that another program trained, in our form."""

    hparams: HParams
    problem: Problem
    vocabulary: Vocabulary
    weights: Mapping[str, np.ndarray]
    """The weights by their names in the model, float32."""
    step: int = 0
    """Number of training steps; 0 if unknown."""

    def report(self) -> str:
        """Returns lines that say what is imported."""
        raise NotImplementedError

    def _size(self) -> str:
        return f"{sum(value.size for value in self.weights.values()):,} parameters"

    def _problem_line(self) -> str:
        languages = list(self.problem.languages)
        if self.problem.was_reversed:
            languages.reverse()
        line = f"problem: {self.problem.name}"
        return f"{line}, {' to '.join(languages)}" if all(languages) else line

    def _training_line(self, hparams_set: str) -> str:
        """Returns the line with the flags of t2t-trainer that give the model's hparams."""
        usual = vars(registry.hparams(hparams_set))
        hparams = vars(self.hparams).items()
        changes = [f"{name}={value}" for name, value in hparams if value != usual[name]]
        line = f"to train on: --hparams_set={hparams_set}"
        return f"{line} --hparams={','.join(changes)}" if changes else line

    def write(self, output_dir: str) -> str:
        """Writes a new model folder, and returns the path of its checkpoint. Raises UserError if
        the folder has files.
        """
        import tensorflow as tf  # imported here, because the import takes seconds

        from t2t_repro.checkpoints.checkpoint_files import keep_only, write_checkpoint

        path = Path(output_dir)
        if any(path.glob("[!.]*")):
            raise UserError(f"--output_dir={output_dir}: has files; give a new folder")
        state = tf.train.Checkpoint(
            weights={name: tf.Variable(value) for name, value in self.weights.items()},
            step=tf.Variable(self.step, dtype=tf.int64),
            vocabulary_fingerprint=tf.Variable(self.vocabulary.fingerprint),
        )
        origin = Origin.without_data(self.problem, self.vocabulary)
        with ModelFolder.locked(path), unfinished_folder(path) as new:
            ModelFolder.create(new, self.hparams, self.vocabulary, origin, self.problem)
            checkpoint = write_checkpoint(state, new, self.step)
            for file in sorted(new.iterdir()):
                file.rename(path / file.name)
        checkpoint = str(path / Path(checkpoint).name)
        keep_only(path, [checkpoint])
        return checkpoint
