"""Imports a model that tensor2tensor trained: t2t-import --t2t_model=OLD_FOLDER --output_dir=M

OLD_FOLDER is the --output_dir of tensor2tensor's trainer, or a folder of its averaged checkpoints. The program takes
the last checkpoint, and finds hparams.json, the vocabulary and the name of the problem itself: it reads the flags in
flags_t2t.txt, and looks for a relative --data_dir in the current folder and in all folders above OLD_FOLDER. If a file
is not found, name it with a flag.

All other programs take M like a model folder of t2t-trainer. To train on, start from it: t2t-trainer
--warm_start_from=M. See docs/from_tensor2tensor.md.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from absl import flags

from t2t_repro.bin import program
from t2t_repro.console.progress import say
from t2t_repro.errors import UserError
from t2t_repro.problem import SpaceID

FLAGS = flags.FlagValues()
for name, help_text in {
    "t2t_model": "folder of tensor2tensor's model; its last checkpoint is imported",
    "checkpoint": "instead of --t2t_model: a checkpoint, e.g. OLD_FOLDER/model.ckpt-250000",
    "output_dir": "the model folder to write; it must not exist, or be empty",
    "hparams_json": "hparams.json of the training; default: that in the folder of the checkpoint",
    "hparams_set": "without hparams.json: a set here with the sizes of the model, e.g. transformer_big",
    "problem": "tensor2tensor's name of the problem; default: that in flags_t2t.txt",
    "vocab": "vocabulary file of sources and targets; default: the file that fits, in the old folder or its --data_dir",
    "source_vocab": "vocabulary file of the sources, if the targets have another one",
    "target_vocab": "vocabulary file of the targets, if the sources have another one",
    "languages": "languages of sources and targets, e.g. en,de, for the paper's BLEU; default: those of the problem, "
    "or those in a name such as translate_ende_wmt32k",
}.items():
    flags.DEFINE_string(name, "", help_text, flag_values=FLAGS)
flags.DEFINE_enum(
    "vocab_type",
    "",
    ["", "subwords", "tokens", "character"],
    "kind of the vocabulary files, tensor2tensor's VocabType; default: what their names or contents say",
    flag_values=FLAGS,
)
flags.DEFINE_integer(
    "average_last", 1, "number of last checkpoints of --t2t_model to average", lower_bound=1, flag_values=FLAGS
)
flags.DEFINE_integer(
    "target_space_id",
    None,
    "tensor2tensor's number for the kind of the targets; before its version 1.5.2, 8 for German and 6 for French; "
    "default: that of the problem, or 0",
    lower_bound=0,
    upper_bound=SpaceID.COUNT - 1,
    flag_values=FLAGS,
)


def main(values: flags.FlagValues) -> None:
    """Imports the model that the flags name, and prints what was used and what was not."""
    program.require(values, "output_dir")
    if bool(values.t2t_model) == bool(values.checkpoint):
        raise UserError("--t2t_model or --checkpoint: give one of them, the folder of tensor2tensor's model or a file")
    if values.t2t_model and not Path(values.t2t_model).is_dir():
        raise UserError(f"--t2t_model={values.t2t_model}: no such folder")
    program.load_tensorflow()
    from t2t_repro import devices
    from t2t_repro.tensor2tensor.model import Import, Request

    devices.hide_gpus()  # a training run may be using all their memory
    settings = {"languages": values.languages or None, "target_space": values.target_space_id}
    settings = {name: value for name, value in settings.items() if value is not None}
    imported = Import(
        Request(
            checkpoint=values.t2t_model or values.checkpoint,
            average_last=values.average_last,
            hparams_json=values.hparams_json,
            hparams_set=values.hparams_set,
            problem=values.problem,
            source_vocab=values.source_vocab or values.vocab,
            target_vocab=values.target_vocab or values.vocab,
            vocab_type=values.vocab_type,
            settings=settings,
        )
    )
    checkpoint = imported.write(values.output_dir)
    flags_of_model = {"output_dir": values.output_dir, "t2t_usr_dir": values.t2t_usr_dir}
    arguments = [f"--{name}={shlex.quote(value)}" for name, value in flags_of_model.items() if value]
    say(f"{imported.report()}\n{checkpoint}: written; try t2t-decoder {' '.join(arguments)}")


run = program.entry_point(main, FLAGS, __doc__)

if __name__ == "__main__":
    run()
