"""Flags that repeat the content of a model folder: its problem, data, model and hparams.

tensor2tensor's decoder and exporter need these flags. Here the model folder has their values, so
they can be omitted.
"""

from absl import flags

from t2t_repro import registry
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.errors import UserError
from t2t_repro.hparam import assignments, typed

IMPORTED = "t2t_text"
"""Problem of imported models. It stands for tensor2tensor's problem, which may not be registered
here.
"""


def define_model_flags(values: flags.FlagValues) -> None:
    """Defines --problem, --data_dir, --model, --hparams_set and --hparams."""
    for name in ("problem", "data_dir", "model", "hparams_set", "hparams"):
        text = (
            "as in t2t-trainer; not needed, because the model folder has it, and compared with "
            "the folder"
        )
        flags.DEFINE_string(name, "", text, flag_values=values)


def check_model_flags(values: flags.FlagValues, folder: ModelFolder) -> None:
    """Raises UserError if a flag that `define_model_flags` defined contradicts the model folder.

    --data_dir is not read, because the folder has the vocabulary. --problem and --hparams_set of an
    imported model are tensor2tensor's names, which may be unknown here, so they are not compared.
    """
    hparams = folder.hparams
    problem = folder.problem.name
    changes = typed(type(hparams), assignments(values.hparams))
    if values.problem not in ("", problem) and problem != IMPORTED:
        _refuse(f"--problem={values.problem}", folder, f"the problem {problem}")
    if values.model not in ("", hparams.model):
        _refuse(f"--model={values.model}", folder, f"the model {hparams.model}")
    for name, value in changes.items():
        if value != getattr(hparams, name):
            _refuse(f"--hparams={name}={value}", folder, f"{name}={getattr(hparams, name)}")
    if not values.hparams_set or problem == IMPORTED:
        return
    registered = registry.hparams(values.hparams_set)
    for name in hparams.affecting("weights", "outputs"):
        set_value = getattr(registered, name, None)
        folder_value = getattr(hparams, name)
        if name not in changes and set_value != folder_value:
            flag = f"--hparams_set={values.hparams_set} has {name}={set_value}"
            _refuse(flag, folder, f"{name}={folder_value}")


def _refuse(flag: str, folder: ModelFolder, value: str) -> None:
    raise UserError(
        f"{flag}, but {folder.path} has {value}; omit the flag, or give another --output_dir"
    )
