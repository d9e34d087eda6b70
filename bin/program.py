"""What all programs share: reading flags, importing user code, errors in one line, and flags that several have."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import tempfile
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from absl import flags

from t2t_repro import registry
from t2t_repro.errors import Stopped, UserError
from t2t_repro.hparam import DecodeHParams
from t2t_repro.problem import Problem
from t2t_repro.progress import say
from t2t_repro.textfile import decode_lines

STANDARD = ("", "-")
"""Names of the standard streams, where a flag wants a file."""

GPU = Path("/dev/nvidia0")
"""There where the machine has an NVIDIA GPU and its driver."""

Main = Callable[[flags.FlagValues], None]


def run(main: Main, values: flags.FlagValues, description: str | None, argv: Sequence[str] | None = None) -> int:
    """Parses `argv` into `values`, calls `main(values)` and returns the exit code.

    An error that the user can mend ends in one line on standard error and code 2; an interrupt in code 130, or in 0
    where the work is saved.

    Args:
        description: what --help prints above the flags; the module's docstring.
        argv: the program's name and its arguments; those of the process if None.
    """
    argv = list(sys.argv if argv is None else argv)
    name = Path(argv[0]).name.removesuffix(".py").replace("_", "-")
    try:
        for flag, text in (("help", "print this text"), ("registry_help", "list problems, hparams sets and models")):
            flags.DEFINE_bool(flag, False, text, short_name="h" if flag == "help" else None, flag_values=values)
        flags.DEFINE_string(
            "t2t_usr_dir", "", "folder with an __init__.py that imports your own registered code", flag_values=values
        )
        values(argv, known_only=True)
        registry.import_usr_dir(values.t2t_usr_dir)
        _define_settings(values)
        if values.help:
            print(f"{(description or '').strip()}\n\nFlags of {name}:\n{values.get_help()}")
        elif values.registry_help:
            print(registry.help_text())
        else:
            positional = values(argv)[1:]
            if positional:
                raise UserError(f"unexpected argument {positional[0]!r}; every option is a flag: --name=value")
            main(values)
        return 0
    except Stopped as stopped:
        say(f"{name}: {stopped}")
        return 0
    except (UserError, flags.Error) as error:
        message = " ".join(str(error).split())
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # whoever read our standard output has gone, e.g. `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        message = f"{error.filename or 'input/output'}: {error.strerror or error}"
    except KeyboardInterrupt:
        message = "interrupted"
    say(f"{name}: {message}")
    return 130 if message == "interrupted" else 2


def _define_settings(values: flags.FlagValues) -> None:
    """Gives a program that takes --problem a flag for each field of that problem's settings."""
    if "problem" not in values or not values.problem:
        return
    settings = registry.problem_class(values.problem).Settings
    for field in dataclasses.fields(settings):
        define = flags.DEFINE_boolean if isinstance(field.default, bool) else flags.DEFINE_string
        text = field.metadata.get("help", "")
        define(
            field.name, None, f"{text} (setting of --problem={values.problem}; default: {field.default!r})",
            flag_values=values,
        )  # fmt: skip


def problem(values: flags.FlagValues) -> Problem:
    """The problem that --problem names, with the settings given as flags.

    Raises:
        UserError: no --problem, an unknown name, or a setting of another type.
    """
    return registry.problem(values.problem, given_settings(values))


def given_settings(values: flags.FlagValues) -> dict[str, Any]:
    """The problem's settings that are given as flags; raises as `problem` does."""
    from t2t_repro.hparam import parse_value

    required(values, "problem")
    types = typing.get_type_hints(registry.problem_class(values.problem).Settings)
    given = {name: values[name].value for name in types if values[name].value is not None}
    return {name: parse_value(f"--{name}", str(value), types[name]) for name, value in given.items()}


def required(values: flags.FlagValues, *names: str) -> None:
    """Raises UserError where one of the flags has no value."""
    for name in names:
        if not values[name].value:
            raise UserError(f"--{name} is required: {values[name].help}")


@contextmanager
def quiet_tensorflow() -> Iterator[None]:
    """Keeps TensorFlow's start-up lines off standard error; they come back if what is inside raises."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 2)
        try:
            yield
        except BaseException:
            kept.seek(0)
            os.write(stderr, kept.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


def load_tensorflow() -> Any:
    """Imports TensorFlow and Keras without their start-up lines; returns the tensorflow module."""
    with quiet_tensorflow():
        import keras  # noqa: F401
        import tensorflow as tf

        gpus = tf.config.list_physical_devices("GPU")  # looks for devices now, with lines of its own
    if GPU.exists() and not gpus and os.environ.get("CUDA_VISIBLE_DEVICES", "0") not in ("", "-1"):
        say('there is a GPU that TensorFlow does not see; "pip install tensorflow[and-cuda]" may be what it lacks')
    return tf


def define_problem(values: flags.FlagValues) -> None:
    """Defines --problem, --data_dir and --tmp_dir."""
    flags.DEFINE_string("problem", "", "what to learn; --registry_help lists the names", flag_values=values)
    flags.DEFINE_string("data_dir", "t2t_data", "folder of the generated data", flag_values=values)
    flags.DEFINE_string(
        "tmp_dir",
        os.path.join(tempfile.gettempdir(), "t2t_datagen"),
        "folder of downloads and raw sources",
        flag_values=values,
    )


def define_model_folder(values: flags.FlagValues, several: bool = False) -> None:
    """Defines --output_dir and --checkpoint_path, for programs that use a trained model, or several together."""
    ensemble = "; several, separated by commas, are an ensemble" if several else ""
    flags.DEFINE_string("output_dir", "", f"the model folder, as t2t-trainer made it{ensemble}", flag_values=values)
    flags.DEFINE_string(
        "checkpoint_path",
        "",
        "checkpoint to use; default: the averaged one if it is as new as the latest, else the latest",
        flag_values=values,
    )


def define_long_lines(values: flags.FlagValues) -> None:
    """Defines --long_lines."""
    flags.DEFINE_enum(
        "long_lines",
        "split",
        ["split", "truncate", "error"],
        "lines longer than the model was trained on (max_input_size in --decode_hparams): translate them sentence by "
        "sentence, leave out their end, or stop",
        flag_values=values,
    )


def define_decode_hparams(values: flags.FlagValues) -> None:
    """Defines --decode_hparams."""
    names = [field.name for field in dataclasses.fields(DecodeHParams)]
    flags.DEFINE_string(
        "decode_hparams",
        "",
        'overrides of how the problem is decoded: "beam_size=4,alpha=0.6,extra_length=50,batch_size=2048"; the first '
        "three are the paper's values, and batch_size counts source tokens (tensor2tensor's: 100 for extra_length, and "
        f"batch_size in sentences); there are {', '.join(names)}; docs/decoding.md has the formulas",
        flag_values=values,
    )


def typed_lines(prompt: str, history: Path) -> Iterator[str]:
    """The lines a person types, with editing and a history that is kept in a file; without a terminal, lines that come.

    Ends with the input: Ctrl-D on a terminal.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):  # the prompt would be in the output
        yield from decode_lines(sys.stdin.buffer, "standard input")
        return
    import readline

    history = history.expanduser()
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    readline.set_history_length(1000)
    print("Ctrl-D ends.", file=sys.stderr, flush=True)
    while True:
        try:
            text = input(prompt)
        except EOFError:
            print(file=sys.stderr)
            return
        except UnicodeDecodeError:
            print("not UTF-8; type it again", file=sys.stderr, flush=True)
            continue
        with contextlib.suppress(OSError):
            readline.write_history_file(history)
        yield text
