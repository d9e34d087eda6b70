"""Imports a model of tensor2tensor or OpenNMT-tf, or a MarianMT model (OPUS-MT) that transformers
saved.

    t2t-import --t2t_model=OLD_FOLDER --output_dir=M
    t2t-import --huggingface=FOLDER --output_dir=M
    t2t-import --opennmt_tf=RUN_DIR --source_vocab=FILE --target_vocab=FILE --output_dir=M

OLD_FOLDER is the --output_dir of tensor2tensor's trainer, or a folder of its averaged checkpoints.
The program takes the last checkpoint, and finds hparams.json, the vocabulary and the name of the
problem itself: it reads the flags in flags_t2t.txt, and looks for a relative --data_dir in the
current folder and in all folders above OLD_FOLDER. If a file is not found, name it with a flag.

All other programs take M like a model folder of t2t-trainer. To train on, start from it:
t2t-trainer --warm_start_from=M. See docs/from_tensor2tensor.md, docs/huggingface.md and
docs/opennmt_tf.md.
"""

import dataclasses
import shlex
from pathlib import Path

from absl import flags

from t2t_repro.bin import program
from t2t_repro.checkpoints.imported import ImportedModel
from t2t_repro.console.progress import say
from t2t_repro.errors import UserError
from t2t_repro.huggingface.model import MarianImport
from t2t_repro.opennmt_tf.model import OpenNMTImport
from t2t_repro.tensor2tensor.model import Import, Request

FIELDS = {field.name for field in dataclasses.fields(Request)}
OF_OPENNMT = {
    "vocab",
    "source_vocab",
    "target_vocab",
    "sentencepiece_model",
    "languages",
    "average_last",
}
USELESS = {
    "with --huggingface": sorted({"opennmt_tf", *FIELDS}),
    "with --opennmt_tf": sorted(FIELDS - OF_OPENNMT),
    "without --opennmt_tf": ["sentencepiece_model"],
}

FLAGS = program.make_flags(Request)
flags.DEFINE_string(
    "huggingface",
    "",
    "folder of a MarianMT model of transformers, instead of one of tensor2tensor",
    flag_values=FLAGS,
)
flags.DEFINE_string(
    "opennmt_tf",
    "",
    "model_dir of OpenNMT-tf, or its folder avg; its last checkpoint is imported",
    flag_values=FLAGS,
)
flags.DEFINE_string(
    "output_dir", "", "the model folder to write; it must not exist, or be empty", flag_values=FLAGS
)


def main(values: flags.FlagValues) -> None:
    program.require(values, "output_dir")
    for name in ("huggingface", "opennmt_tf", "t2t_model"):
        if values[name].value and not Path(values[name].value).is_dir():
            raise UserError(f"--{name}={values[name].value}: no such folder")
    program.refuse_useless(values, USELESS)
    program.load_tensorflow(has_gpus=False)  # a training run may be using all their memory
    request = program.from_flags(Request, values)
    imported: ImportedModel
    if values.huggingface:
        imported = MarianImport(Path(values.huggingface))
    elif values.opennmt_tf:
        imported = OpenNMTImport(dataclasses.replace(request, t2t_model=values.opennmt_tf))
    else:
        imported = Import(request)
    checkpoint = imported.write(values.output_dir)
    flags_of_model = {"output_dir": values.output_dir, "t2t_usr_dir": values.t2t_usr_dir}
    arguments = [
        f"--{name}={shlex.quote(value)}" for name, value in flags_of_model.items() if value
    ]
    say(f"{imported.report()}\n{checkpoint}: written; try t2t-decoder {' '.join(arguments)}")


run = program.entry_point(main, FLAGS, __doc__)
