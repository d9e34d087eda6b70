"""Writes the model folder of a model that another program trained, and says how to train it on."""

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


def training_flags(hparams: HParams, hparams_set: str) -> str:
    """Returns the flags of t2t-trainer that train with the hparams of an imported model."""
    usual = vars(registry.hparams(hparams_set))
    changes = [f"{name}={value}" for name, value in vars(hparams).items() if value != usual[name]]
    flags = f"--hparams_set={hparams_set}"
    return f"{flags} --hparams={','.join(changes)}" if changes else flags


def write_imported(
    output_dir: str,
    content: tuple[HParams, Problem, Vocabulary],
    weights: Mapping[str, np.ndarray],
    step: int,
) -> str:
    """Writes a new model folder, and returns the path of its checkpoint. Raises UserError if the
    folder has files.

    `weights` has the weights by their names in the model, float32.
    """
    import tensorflow as tf  # imported here, because the import takes seconds

    from t2t_repro.checkpoints.checkpoint_files import keep_only, write_checkpoint

    hparams, problem, vocabulary = content
    path = Path(output_dir)
    if any(path.glob("[!.]*")):
        raise UserError(f"--output_dir={output_dir}: has files; give a new folder")
    state = tf.train.Checkpoint(
        weights={name: tf.Variable(value) for name, value in weights.items()},
        step=tf.Variable(step, dtype=tf.int64),
        vocabulary_fingerprint=tf.Variable(vocabulary.fingerprint),
    )
    with ModelFolder.locked(path), unfinished_folder(path) as new:
        ModelFolder.create(
            new, hparams, vocabulary, Origin.without_data(problem, vocabulary), problem
        )
        checkpoint = write_checkpoint(state, new, step)
        for file in sorted(new.iterdir()):
            file.rename(path / file.name)
    checkpoint = str(path / Path(checkpoint).name)
    keep_only(path, [checkpoint])
    return checkpoint
