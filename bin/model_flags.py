"""Flags that repeat the content of a model folder: its problem, data, model and hparams.

tensor2tensor's decoder and exporter need these flags. Here the model folder has their values, so they can be omitted. A
flag that the user gives must agree with the folder.
"""

from __future__ import annotations

from pathlib import Path

from absl import flags

from t2t_repro import registry
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.console.progress import say
from t2t_repro.data.vocabularies.kinds import MAX_BYTES
from t2t_repro.data.vocabularies.tensor2tensor import BYTES_MODEL
from t2t_repro.errors import UserError
from t2t_repro.files.untrusted import read_bytes
from t2t_repro.hparam import overrides

T2T_SETS = {"norm_before": True, "use_target_space_embedding": True}
"""Values of all of tensor2tensor's Transformer sets since its version 1.3. Its transformer_base, for example, has them.
transformer_base here is the paper's and has other values."""
IMPORTED = "t2t_text"
"""Problem of imported models. It stands for tensor2tensor's problem, which may not be registered here."""


def define_model_flags(values: flags.FlagValues) -> None:
    """Defines --problem, --data_dir, --model, --hparams_set and --hparams."""
    for name in ("problem", "data_dir", "model", "hparams_set", "hparams"):
        text = "as in t2t-trainer; not needed, but must agree with the model folder"
        flags.DEFINE_string(name, "", text, flag_values=values)


def check_model_flags(values: flags.FlagValues, folder: ModelFolder) -> None:
    """Raises UserError if a flag that `define_model_flags` defined contradicts the model folder."""
    if values.problem not in ("", folder.problem.name) and not _is_imported(values.problem, folder):
        raise _contradiction(f"--problem={values.problem}", folder, f"the problem {folder.problem.name}")
    if values.model not in ("", folder.hparams.model):
        raise _contradiction(f"--model={values.model}", folder, f"the model {folder.hparams.model}")
    changes = overrides(type(folder.hparams), values.hparams)
    for name, value in changes.items():
        if value != (folder_value := getattr(folder.hparams, name)):
            raise _contradiction(f"--hparams={name}={value}", folder, f"{name}={folder_value}")
    if values.hparams_set:
        names = [name for name in folder.hparams.shapes_weights if name not in changes]
        _check_hparams_set(values.hparams_set, folder, names)
    if values.data_dir:
        _check_data_dir(values.data_dir, folder)


def _is_imported(problem: str, folder: ModelFolder) -> bool:
    """Returns True if the folder may hold an imported model that tensor2tensor trained on `problem`."""
    is_t2t_problem = not registry.has_problem(problem) or any(registry.problem(problem).t2t_vocabularies)
    return folder.problem.name == IMPORTED and is_t2t_problem


def _check_hparams_set(hparams_set: str, folder: ModelFolder, names: list[str]) -> None:
    """Raises UserError if the model's hparams `names` have other values in the hparams set than in the folder.

    A folder may have the values of the set here, or those of tensor2tensor's set of the same name.
    """
    if folder.problem.name == IMPORTED and not registry.has_hparams(hparams_set):
        say(f"--hparams_set={hparams_set} is not registered here, so it was not compared with {folder.path}")
        return
    hparams = registry.hparams(hparams_set)
    for name in names:
        value, folder_value = getattr(hparams, name, None), getattr(folder.hparams, name)
        if folder_value not in (value, T2T_SETS.get(name, value)):
            raise _contradiction(f"--hparams_set={hparams_set} has {name}={value}", folder, f"{name}={folder_value}")


def _check_data_dir(data_dir: str, folder: ModelFolder) -> None:
    """Raises UserError unless the data directory has files with the vocabularies of the model folder."""
    paths = [path for path in sorted(Path(data_dir).glob("vocab.*")) if path.is_file()]
    contents = {read_bytes(path, MAX_BYTES) for path in paths}
    # tensor2tensor writes no file for a vocabulary of bytes.
    if {folder.vocabulary.model, folder.vocabulary.sources.model} - {BYTES_MODEL} - contents:
        vocabularies = ", ".join(path.name for path in paths) or "no vocabulary"
        raise _contradiction(
            f"--data_dir={data_dir} holds {vocabularies}", folder, f"another vocabulary, {folder.origin.vocabulary}"
        )


def _contradiction(flag: str, folder: ModelFolder, value: str) -> UserError:
    return UserError(f"{flag}, but {folder.path} has {value}; omit the flag, or give another --output_dir")
