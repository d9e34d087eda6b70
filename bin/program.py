"""Functions that all programs share: they parse flags, import user code, load TensorFlow and print
errors in one line.

Programs import TensorFlow, Keras and sacreBLEU only inside the functions that use them. Each import
takes seconds, and --help or a mistake in a flag should be answered immediately.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import inspect
import itertools
import os
import re
import resource
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from absl import flags

from t2t_repro import registry
from t2t_repro.bin.completion import script
from t2t_repro.console.progress import say, visible
from t2t_repro.console.quiet import quick_imports, quiet_tensorflow
from t2t_repro.console.terminal import width_of, wrapped
from t2t_repro.corpora.private_folder import default_folder
from t2t_repro.errors import Stopped, UserError, located, memory_shortage
from t2t_repro.files.output_files import (
    Input,
    is_stream,
    only_writer,
    refuse_overwriting,
    without_links,
)
from t2t_repro.files.textfile import OPENERS, SGML, decode_lines
from t2t_repro.hparam import DecodeHParams, assignments, parse_value
from t2t_repro.problem import Problem
from t2t_repro.tensor2tensor.names import explained, explained_flag

if TYPE_CHECKING:
    from t2t_repro.checkpoints.model_folder import ModelFolder
    from t2t_repro.decoding.translator import Translator

STANDARD_STREAMS = ("", "-")
"""File names that stand for standard input or standard output."""
STANDARD_INPUT = 0
STANDARD_OUTPUT = 1
"""File descriptors of standard input and standard output."""
GPU_DEVICE = Path("/dev/nvidia0")
"""Device file that exists if the machine has an NVIDIA GPU and its driver."""

Main = Callable[[flags.FlagValues], None]
T = TypeVar("T")
TEXTS = tuple[str, ...]
"""Type of a field whose flag is a list of texts, separated by commas."""


@dataclasses.dataclass(frozen=True)
class SharedFlags:
    """Flags of several programs; see `make_flags`."""

    problem: str = ""
    """Name of the problem; --registry_help lists the names."""
    data_dir: str = "t2t_data"
    """Folder of the generated data."""
    tmp_dir: str = dataclasses.field(default=default_folder())
    """Folder of downloads and other source files, which other users must not be able to write."""
    decode_from_file: str = ""
    """File to translate, plain or compressed; standard input by default and with -."""
    decode_to_file: str = ""
    """File, pipe or device to write; standard output by default and with -."""
    output_dir: str = ""
    """The model folder that t2t-trainer made; t2t-decoder and t2t-translate-beam also take several
    folders, separated by commas, which form an ensemble.
    """
    checkpoint_path: str = ""
    """Checkpoint to use, or a folder, e.g. best for M/best; default: the averaged checkpoint, or
    the latest checkpoint if it is newer.
    """
    long_lines: Literal["split", "sentences", "truncate", "error"] = "split"
    """Treatment of lines that are longer than the model was trained on, or than max_input_size in
    --decode_hparams: split them into sentences, drop their end, or stop with an error; sentences:
    also split shorter lines.
    """
    target_language: str = ""
    """Language of the translations, e.g. zh, by whose rules scores split words; default: that of
    the model's problem or of --language_pair. A model with several target languages translates
    lines without a tag into it.
    """
    precision: Literal["float32", "bfloat16"] = "float32"
    """Dtype of weights and matrix products; bfloat16 needs half the memory and is faster if the
    processor supports it.
    """
    engine: Literal["tensorflow", "ctranslate2"] = "tensorflow"
    """Program that runs the model; ctranslate2: the extra of this name, fast on CPUs
    (docs/ctranslate2.md).
    """
    quantization: str = ""
    """Type of the weights in a CTranslate2 model, e.g. int8; default: float32."""
    decode_hparams: str = ""
    """Changes to the decode hparams of the problem, e.g. "beam_size=4,alpha=0.6,extra_length=50" as
    in the paper. batch_size counts source tokens. (tensor2tensor's extra_length is 100; its
    batch_size counts sentences.) docs/decoding.md explains the names: beam_size, alpha,
    extra_length, batch_size, max_input_size, n, write_beam_scores, prefix_file, well_formed,
    coverage_penalty, repeat_ngram_size, repeat_ngram_penalty, sampling_method, sampling_temp,
    sampling_keep_top_k, sampling_keep_top_p, sampling_seed.
    """


@dataclasses.dataclass(frozen=True)
class CommonFlags:
    """Flags of all programs."""

    help: bool = False
    """Print this text; also -h and --helpfull."""
    registry_help: bool = False
    """List all problems, hparams sets and models."""
    version: bool = False
    """Print the versions of this program, TensorFlow and Keras."""
    completion: Literal["", "bash", "zsh"] = ""
    """Print a script with which a shell completes the flags of all programs: source <(t2t-trainer
    --completion=bash)"""
    t2t_usr_dir: str = ""
    """Folder with an __init__.py that imports the problems, hparams sets and models that you have
    written.
    """
    flagfile: str = ""
    """File with more flags, one a line."""


def entry_point(
    main: Main, values: flags.FlagValues, description: str | None
) -> Callable[[], None]:
    """Returns the function that runs a program and exits with its exit code. `main` is called with
    the parsed flags `values`, and --help prints `description`.
    """
    return lambda: sys.exit(run(main, values, description))


def run(
    main: Main, values: flags.FlagValues, description: str | None, argv: Sequence[str] | None = None
) -> int:
    """Parses `argv`, by default `sys.argv`, into `values`, calls `main(values)` and returns the
    program's exit code.

    The exit code is 0 after success, or if `main` raised `Stopped` after it saved its work. It is 1
    if the program that reads standard output, e.g. `| head`, has ended, and 130 after Ctrl-C. It is
    2 after a UserError, a wrong flag, a failed file operation or a memory shortage; this function
    then prints one line on standard error. --help prints `description`, the docstring of the
    program's module, above the flags.
    """
    for stream, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, stream) is None:  # closed by the caller: no other file may get its number
            setattr(sys, stream, open(os.devnull, mode))  # noqa: SIM115
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)  # each shard of the data stays open
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    # The user's environment, or ~/.keras/keras.json, may be made for other programs; see also
    # `load_tensorflow`.
    os.environ |= {"KERAS_BACKEND": "tensorflow", "TF_USE_LEGACY_KERAS": "0", "MPLBACKEND": "Agg"}
    # sacremoses' joblib would warn if /dev/shm cannot be written.
    os.environ["JOBLIB_MULTIPROCESSING"] = "0"
    if not os.environ.get("TF_CONFIG"):
        os.environ.pop("TF_CONFIG", None)  # TensorFlow refuses an empty one
    argv = list(sys.argv if argv is None else argv)
    name = Path(argv[0]).name
    try:
        _run(main, values, name, description or "", argv)
        sys.stdout.flush()  # so that a full disk is an error; at its end, Python may ignore it
        return 0
    except Stopped as stopped:
        say(f"{name}: {stopped}")
        return 0
    except KeyboardInterrupt:
        say(f"{name}: interrupted")
        return 130
    except BrokenPipeError:
        return 1
    except OSError as error:
        cure = ""
        if "temporary directory" in str(error):
            cure = "; set TMPDIR to a folder that you can write"
        say(f"{name}: {error.filename or 'input/output'}: {error.strerror or error}{cure}")
    except flags.UnrecognizedFlagError as error:
        needs_problem = "tmp_dir" in values and not values.problem
        hint = "; if it is a setting of a problem, also give --problem" if needs_problem else ""
        say(f"{name}: {explained_flag(name, error.flagname) or f'{error}{hint}'}")
    except (UserError, flags.Error) as error:
        say(f"{name}: {' '.join(explained(error).split())}")
    except MemoryError:
        say(
            f"{name}: too little free memory on this machine; end other programs, or give smaller "
            "files"
        )
    except Exception as error:
        if shortage := memory_shortage(error):
            say(
                f"{name}: too little free memory ({shortage}); end other programs, or choose "
                "other GPUs with the environment variable CUDA_VISIBLE_DEVICES"
            )
        elif (usr_dir := registry.usr_dir()) and (mistake := located(error)).startswith(usr_dir):
            say(f"{name}: {mistake}")
        else:
            raise
    except SystemExit as error:  # raised by user code
        say(f"{name}: {located(error).rstrip(': ')}, which ends the program; remove it")
    finally:
        _end_output()
    return 2


def _end_output() -> None:
    """Writes the rest of standard output. If that fails, sends it to /dev/null, because Python
    writes it at its end.
    """
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(
    main: Main, values: flags.FlagValues, name: str, description: str, argv: list[str]
) -> None:
    """Parses the flags; then prints the help, prints the registered names for --registry_help, or
    calls `main`.
    """
    argv = [_with_home(argument) for argument in values.read_flags_from_files(argv)]
    argv = ["--help" if argument in ("-h", "--helpfull") else argument for argument in argv]
    for argument in argv:
        if argument != argument.encode(errors="replace").decode():
            raise UserError(f"argument {argument!a} is not UTF-8; rename the file")
    own = [*values]
    common = make_flags(CommonFlags)
    values.append_flag_values(common)
    # First parse only the flags defined so far. The flags of the problem's settings can be defined
    # only after --problem is parsed and --t2t_usr_dir is imported.
    values(argv, known_only=True)
    with quiet_tensorflow():  # user code may import Keras
        registry.import_usr_dir(values.t2t_usr_dir)
    settings = _define_settings(values)
    if values.help:
        groups = {
            f"Flags of {name}": own,
            "Settings of the problem": settings,
            "Flags of all programs": [*common],
        }
        # Joins the lines of each paragraph.
        text = re.sub(r"(?<=\S)\n(?=\S)", " ", description.strip())
        text += "".join(_help(title, values, groups[title]) for title in groups)
        write_lines([wrapped(text, width_of(sys.stdout))])
    elif values.registry_help:
        write_lines([registry.help_text()])
    elif values.completion:
        write_lines([script(common)])
    elif values.version:
        packages = ("t2t_repro", "tensorflow", "keras")
        write_lines([", ".join(f"{package} {version(package)}" for package in packages)])
    else:
        for name in values:
            values[name].unparse()  # so that `present` counts only once
        if positional := values(argv)[1:]:
            raise UserError(
                f"unexpected argument {positional[0]!r}; write every option as a flag: --name=value"
            )
        for name in values:
            if values[name].present > 1 and not isinstance(values[name], flags.MultiFlag):
                cure = "give it once"
                if name.endswith("hparams"):
                    cure += ", its changes joined by commas: a=1,b=2"
                raise UserError(f"--{name} is given twice; {cure}")
        main(values)


def _with_home(argument: str) -> str:
    """Returns a flag with the home folder in place of "~" at the start of its paths:
    --train=~/a.en,~/a.de.

    Shells expand "~" only at the start of a word, but --data_dir=~/D means the home folder, as in
    tensor2tensor.
    """
    flag, _, value = argument.partition("=")
    if not value.startswith("~"):
        return argument
    parts = re.split("([,;])", value)
    return f"{flag}={''.join(map(os.path.expanduser, parts))}"


def _define_settings(values: flags.FlagValues) -> list[str]:
    """Defines a flag for each setting of --problem, in programs that read data and so have
    --tmp_dir. Returns them.
    """
    if "tmp_dir" not in values or not values.problem:
        return []
    problem_class = registry.problem_class(values.problem)
    fields = dataclasses.fields(problem_class.Settings)
    for field in fields:
        define = flags.DEFINE_boolean if isinstance(field.default, bool) else flags.DEFINE_string
        if field.metadata.get("is_list"):
            define = flags.DEFINE_multi_string
        default = f" (default: {field.default})" if str(field.default) not in ("", "False") else ""
        help = f"{problem_class.setting_help(field.name)}{default}"
        define(field.name, None, help, flag_values=values)
        values[field.name].help = help  # without absl's words about a list
    return [field.name for field in fields]


def _help(title: str, values: flags.FlagValues, names: Sequence[str]) -> str:
    """Returns the part of --help that explains the flags `names`, or an empty string if there are
    none.
    """
    lines = []
    for flag in (values[name] for name in sorted(names)):
        has_default = flag.default if flag.boolean else flag.default not in (None, "", [])
        default = ",".join(flag.default) if isinstance(flag.default, list) else flag.default
        suffix = f" (default: {default})" if has_default and "default" not in flag.help else ""
        lines.append(f"\n  --{'[no]' if flag.boolean else ''}{flag.name}: {flag.help}{suffix}")
    return f"\n\n{title}:{''.join(lines)}" if lines else ""


def problem(values: flags.FlagValues) -> Problem:
    """Returns the problem that --problem names, with its settings from the flags."""
    return registry.problem(values.problem, problem_settings(values))


def problem_settings(values: flags.FlagValues) -> dict[str, Any]:
    """Returns the values of those settings of the problem that the user gave as flags, by name of
    the setting.
    """
    require(values, "problem")
    types = get_type_hints(registry.problem_class(values.problem).Settings)
    texts = {
        name: ";".join(value) if isinstance(value, list) else str(value)
        for name in types
        if (value := values[name].value) is not None
    }
    return {name: parse_value(f"--{name}", text, types[name]) for name, text in texts.items()}


def require(values: flags.FlagValues, *names: str) -> None:
    """Raises UserError if one of the flags `names` is empty."""
    for name in names:
        if not values[name].value:
            raise UserError(f"--{name} is required: {values[name].help}")


def refuse_useless(values: flags.FlagValues, useless: Mapping[str, Sequence[str]]) -> None:
    """Raises UserError if the user gave a flag or a decode hparam that has no effect.

    For each mode of the program, such as "with --x", "without --x" or "with --x=1", `useless` has
    the flags without effect in it. "decode_hparams=n" stands for the decode hparam n.
    """
    # "-" stands for a standard stream, which is the default.
    given = {name for name in values if values[name].value not in (values[name].default, "-")}
    if "decode_hparams" in values:
        given |= {f"decode_hparams={name}" for name in assignments(values.decode_hparams)}
    for mode, names in useless.items():
        word, _, flag = mode.partition(" --")
        name, _, value = flag.partition("=")
        is_given = values[name].value == value if value else name in given
        for useless_name in names:
            if useless_name in given and is_given == (word == "with"):
                raise UserError(f"--{useless_name} has no effect {mode}; omit it")


def load_tensorflow(has_gpus: bool = True) -> None:
    """Imports TensorFlow without its messages. Warns if it does not see the machine's GPU.

    If `has_gpus` is false, TensorFlow uses only the CPU, and leaves the GPUs to other processes.
    """
    tempfile.gettempdir()  # Without one, TensorFlow fails too, after several lines of messages.
    with quiet_tensorflow(), quick_imports():
        import keras
        import tensorflow as tf

        keras.config.set_floatx("float32")
        keras.config.set_image_data_format("channels_last")  # of convolutions

        # Prints messages, as the import of TensorFlow does.
        gpus = tf.config.list_physical_devices("GPU")
    if not has_gpus:
        from t2t_repro import devices

        devices.hide_gpus()
        return
    is_hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1")
    if GPU_DEVICE.exists() and not gpus and not is_hidden:
        say('TensorFlow does not see this machine\'s GPU; try pip install "tensorflow[and-cuda]"')


TRANSLATION = (
    "output_dir",
    "checkpoint_path",
    "target_language",
    "long_lines",
    "precision",
    "engine",
    "quantization",
    "decode_hparams",
)
"""Names of the shared flags of programs that translate text."""
USELESS_WITH_ENGINE = {
    "with --engine=tensorflow": ("quantization",),
    "with --engine=ctranslate2": ("precision", "output_attention"),
}
"""For each engine, the flags that have no effect with it; see `refuse_useless`."""


def load_translator(
    values: flags.FlagValues,
    folders: Sequence[ModelFolder],
    checkpoints: Sequence[str],
    decode_hparams: DecodeHParams,
    gpu: int = 0,
) -> Translator:
    """Returns the translator for the flags --engine, --precision and --quantization. TensorFlow
    uses one GPU.

    Raises UserError if this machine does not support them.
    """
    if values.engine == "tensorflow":
        load_tensorflow()
        from t2t_repro import devices

        devices.use_one_gpu(gpu)
        devices.share_cores()
    from t2t_repro.decoding.translator import Translator

    precision = weight_type(values)
    translator = Translator.from_folders(
        folders, checkpoints, decode_hparams, precision, values.engine
    )
    say(f"{', '.join(checkpoints)}: {values.engine} {precision}, {decode_hparams}")
    return translator


def weight_type(values: flags.FlagValues) -> str:
    """Returns the precision for `Translator.from_folders`, by --engine's own name for it."""
    return values.quantization or values.precision


def make_flags(*parts: type | str) -> flags.FlagValues:
    """Returns a flag for each field of the dataclasses in `parts`, and for each field of
    `SharedFlags` named there.

    A flag has the name and the default of its field; "" if there is none. Its help is the docstring
    below the field. The choices of a field of type Literal are those of the flag. The field of a
    number may limit its range with the metadata "lower_bound" and "upper_bound"; without them, it
    must be 0 or more. If several dataclasses have a field of one name, the flag is that of the
    first.
    """
    values = flags.FlagValues()
    define = {
        int: flags.DEFINE_integer,
        float: flags.DEFINE_float,
        bool: flags.DEFINE_bool,
        TEXTS: flags.DEFINE_list,
    }
    for kind in (*(part for part in parts if not isinstance(part, str)), SharedFlags):
        types = get_type_hints(kind)
        help = field_help(kind)
        for field in dataclasses.fields(kind):
            name = field.name
            of_type = types[field.name]
            default = "" if field.default is dataclasses.MISSING else field.default
            if name in values or (kind is SharedFlags and name not in parts):
                continue
            if get_origin(of_type) is Literal:
                flags.DEFINE_enum(name, default, get_args(of_type), help[name], flag_values=values)
            else:
                options = {"lower_bound": 0, **field.metadata} if of_type in (int, float) else {}
                default = list(default) if of_type == TEXTS else default
                define.get(of_type, flags.DEFINE_string)(
                    name, default, help[name], flag_values=values, **options
                )
    return values


def field_help(kind: type) -> dict[str, str]:
    """Returns the docstring of each field of a dataclass, in one line, by name of the field."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    help = {}
    for field, docstring in itertools.pairwise(tree.body[0].body):  # type: ignore[attr-defined]
        if isinstance(field, ast.AnnAssign) and isinstance(docstring, ast.Expr):
            help[ast.unparse(field.target)] = " ".join(ast.literal_eval(docstring.value).split())
    return help


def from_flags(kind: type[T], values: flags.FlagValues, **others: Any) -> T:
    """Returns an object of the dataclass `kind`: its fields have the values of the flags with
    their names, and of `others`.
    """
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: values[name].value for name in names if name in values} | others)


@contextmanager
def output(path: str, suffix: str, inputs: Sequence[Input]) -> Iterator[Path | None]:
    """Returns a context in which only this process writes the output --decode_to_file=`path`.

    Yields the path of the file to write, or None for standard output. The program also writes a
    temporary file, whose name ends in `suffix`. Raises UserError if one of both is one of the
    `inputs`, or the output cannot be written.
    """
    flag = "--decode_to_file"
    if path in STANDARD_STREAMS:
        refuse_overwriting(flag, [STANDARD_OUTPUT], inputs)
        yield None
        return
    kind = path[path.rfind(".") :]
    if kind.lower() in OPENERS or SGML.search(path):
        raise UserError(f"{flag}={path} would be plain text; choose a name without {kind}")
    target = without_links(path)
    if path.endswith("/") or target.is_dir():
        raise UserError(f"{flag}={path} is a folder; name a file")
    refuse_overwriting(flag, [path, f"{target}{suffix}"], inputs)
    with contextlib.nullcontext() if is_stream(path) else only_writer(target, flag):
        yield target


def file_inputs(values: flags.FlagValues, *names: str) -> list[Input]:
    """Returns the files that the flags `names` give. If the first flag is empty or "-", that is
    standard input.
    """
    inputs: list[Input] = [(f"--{name}={values[name].value}", values[name].value) for name in names]
    if values[names[0]].value in STANDARD_STREAMS:
        inputs[0] = ("standard input", STANDARD_INPUT)
    return [(name, path) for name, path in inputs if path != ""]


def readable_path(path: str) -> str:
    """Returns the path from which to read the value of a flag: "/dev/stdin" for "-", else
    `path`.
    """
    return "/dev/stdin" if path == "-" else path


def write_lines(lines: Sequence[str], file: IO[bytes] | None = None) -> None:
    """Writes lines to a file at once, in UTF-8; None stands for standard output.

    If the file is a terminal, it gets escape sequences instead of control characters, which could
    change the terminal.
    """
    file = file or sys.stdout.buffer
    text = "".join(f"{line}\n" for line in lines)
    file.write((visible(text) if file.isatty() else text).encode("utf-8"))
    file.flush()


def typed_lines() -> Iterator[str]:
    """Yields the lines of standard input. On a terminal, shows a prompt, and the user can edit and
    recall lines.
    """
    # If standard input or output is a file or a pipe, print no prompt, because it would become part
    # of the output.
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        yield from decode_lines(sys.stdin.buffer, "standard input")
        return
    import readline  # noqa: F401, `input` uses it

    print("Ctrl-D ends the program.", file=sys.stderr, flush=True)
    with contextlib.suppress(EOFError):
        while True:
            yield input("> ")
    print(file=sys.stderr)
