"""Shows how a model translates, on a page in the browser: t2t-insights --output_dir=M

The page shows the translations of a sentence, each step of the beam search, and the attention of
each layer and head. --compare_with=M2 shows a second model beside the first.
--compare_checkpoint_path=M/model.ckpt-1000 compares with another checkpoint, by default of the same
model.

The program needs Flask and waitress: pip install "t2t_repro[insights]". Only this machine can open
the page, unless --host is another address. Ctrl-C ends the program. docs/insights.md shows the
page.
"""

import contextlib
import logging
from dataclasses import dataclass, field

from absl import flags

from t2t_repro.bin import program
from t2t_repro.checkpoints.model_folder import ModelFolder, refuse_ensemble
from t2t_repro.console.progress import say
from t2t_repro.errors import require_extra


@dataclass(frozen=True)
class Flags:
    compare_with: str = ""
    """Model folder of a second model to show beside the first."""
    compare_checkpoint_path: str = ""
    """Checkpoint of the second model; the default is chosen as for --checkpoint_path."""
    host: str = "127.0.0.1"
    """Address of this machine at which the page is served."""
    port: int = field(default=8008, metadata={"upper_bound": 65535})
    """Port of the page; 0 for a free one."""


FLAGS = program.make_flags(Flags, "output_dir", "checkpoint_path")


def main(values: flags.FlagValues) -> None:
    program.require(values, "output_dir", "host")
    opened = [open_model(values, "output_dir", "checkpoint_path")]
    if values.compare_with or values.compare_checkpoint_path:
        opened.append(
            open_model(
                values,
                "compare_with" if values.compare_with else "output_dir",
                "compare_checkpoint_path",
            )
        )
    require_extra("insights", "flask", "waitress")

    program.load_tensorflow()
    # TensorFlow warns of new shapes, and waitress of requests that wait.
    for name in ("tensorflow", "waitress"):
        logging.getLogger(name).setLevel(logging.ERROR)
    from t2t_repro import devices
    from t2t_repro.insights import server
    from t2t_repro.insights.answers import ExploredModel

    with server.listen(values.host, values.port) as listener:
        devices.use_one_gpu(0)
        devices.share_cores()
        models = [ExploredModel.load(folder, checkpoint) for folder, checkpoint in opened]
        for model in models:
            say(f"{model.name}: {model.description}")
        with contextlib.suppress(KeyboardInterrupt):
            say(f"{server.address(listener)} is ready; Ctrl-C ends the program")
            server.serve(models, listener, values.host)


def open_model(
    values: flags.FlagValues, folder_flag: str, checkpoint_flag: str
) -> tuple[ModelFolder, str]:
    path = values[folder_flag].value
    refuse_ensemble(folder_flag, path)
    folder = ModelFolder(path)
    return folder, folder.checkpoint(values[checkpoint_flag].value, f"--{checkpoint_flag}")


run = program.entry_point(main, FLAGS, __doc__)
