"""Lists the names and defaults that versions 1.x keep (docs/versions.md), one a line.

`python tests/helpers/public_names.py` prints them; tests/golden/data/ has those of the last
release.
"""

import dataclasses
import importlib
import inspect
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

from absl import flags

from t2t_repro import registry
from t2t_repro.bin import PROGRAMS, program
from t2t_repro.corpora.private_folder import default_folder
from t2t_repro.hparam import DecodeHParams, traits
from t2t_repro.problem import Problem

FUNCTIONS = {
    "registry": (
        *(
            "register_problem",
            "register_hparams",
            "register_model",
            "problem",
            "problem_class",
            "hparams",
            "model",
        ),
        *("override_hparams", "import_usr_dir"),
    ),
    "problem": (
        "setting",
        "Problem.generate",
        "Problem.test_set",
        "Problem.finish",
        "Problem.scores",
        "Problem.check",
    ),
    "problems.text_problems": (
        "txt_line_iterator",
        "text2text_txt_iterator",
        "text2text_txt_tab_iterator",
    ),
    "hparam": ("HParams.of", "hparam", "transformer_only"),
    "errors": ("UserError.__init__",),
    "devices": ("use_one_gpu",),
    "layers.dropout": ("Seeds", "dropout"),
    "models.model": (
        *("Model.__call__", "DecodingModel.encode", "DecodingModel.decode", "DecodingModel.start"),
        "DecodingModel.decode_step",
    ),
    "decoding": (
        "Translator.from_dir",
        "Translator.translate",
        "Translator.stream",
        "Translator.score",
    ),
    "serving.client": ("Client", "Client.translate"),
    "visualization.attention": ("pair_attention",),
    "insights.search_tree": ("search_tree",),
    "data.vocabularies.kinds": ("load_vocabulary",),
}
"""Functions and classes that user code calls or overrides, by module of t2t_repro."""
CLASSES = {
    "decoding": ("Translation", "Hypothesis", "PairScore"),
    "serving.client": ("Answer",),
    "problem": ("DatasetSplit", "SpaceID"),
    "problems.text_problems": ("Text2TextProblem",),
    "problems.translate": ("TranslateProblem",),
}
"""Classes whose attributes user code reads or overrides, by module of t2t_repro."""


def names() -> list[str]:
    """Returns all names, sorted. A new name adds lines and changes none."""
    return sorted({*_flags(), *_registered(), *_python()})


def _flags() -> Iterator[str]:
    """Yields the flags of all programs with their defaults and choices."""
    common = program.make_flags(program.CommonFlags)
    for name in PROGRAMS:
        values = importlib.import_module(f"t2t_repro.bin.{name.replace('-', '_')}").FLAGS
        for flag in [*map(values.__getitem__, values), *map(common.__getitem__, common)]:
            default = "(the user's cache)" if flag.default == default_folder() else flag.default
            yield (
                f"{name} "
                f"--{flag.name}={','.join(default) if isinstance(default, list) else default}"
            )
            if isinstance(flag, flags.EnumFlag):
                yield from (
                    f"{name} --{flag.name} accepts {value}" for value in flag.parser.enum_values
                )


def _registered() -> Iterator[str]:
    """Yields the names of problems, hparams sets and models, and those of their settings and
    hparams.
    """
    problems, sets, models = registry.names().values()
    yield from (f"hparams set {name}" for name in sets)
    yield from _fields("decode hparam", DecodeHParams)
    for name in problems:
        problem_class = registry.problem_class(name)
        yield from _fields(f"problem {name}:", problem_class.Settings)
        for field, value in vars(problem_class.decode_hparams).items():
            if value != getattr(DecodeHParams, field):
                yield f"problem {name}: decode hparam {field}={value}"
    for name in models:
        yield from _fields(f"model {name}:", kind := registry.hparams_class(name))
        for field in dataclasses.fields(kind):
            if isinstance(field.default, str):
                for value in traits(kind, field.name).allowed:
                    yield f"model {name}: {field.name} accepts {value}"


def _fields(owner: str, kind: Any) -> Iterator[str]:
    return (f"{owner} {field.name}={field.default}" for field in dataclasses.fields(kind))


def _python() -> Iterator[str]:
    """Yields the parameters of functions, and the attributes of problems and results."""
    for module, functions in FUNCTIONS.items():
        for name in functions:
            function = attrgetter(name)(importlib.import_module(f"t2t_repro.{module}"))
            yield from _parameters(f"{module}.{name}", function)
    yield from _attributes("problem.Problem", Problem({}))
    for module, classes in CLASSES.items():
        for name in classes:
            yield from _attributes(
                f"{module}.{name}", getattr(importlib.import_module(f"t2t_repro.{module}"), name)
            )


def _attributes(name: str, owner: Any) -> Iterator[str]:
    fields = (
        [field.name for field in dataclasses.fields(owner)]
        if dataclasses.is_dataclass(owner)
        else []
    )
    return (
        f"{name}.{attribute}"
        for attribute in [*dir(owner), *fields]
        if not attribute.startswith("_")
    )


def _parameters(name: str, function: Any) -> Iterator[str]:
    """Yields a function's parameters with their places and defaults, and the list of those that it
    requires.
    """
    parameters = [
        value for value in inspect.signature(function).parameters.values() if value.name != "self"
    ]
    required = [
        value.name
        for value in parameters
        if value.default is value.empty and value.kind < value.VAR_POSITIONAL
    ]
    yield f"{name} requires ({', '.join(required)})"
    for place, value in enumerate(parameters, 1):
        is_plain = isinstance(value.default, str | int | float | tuple | None)
        default = (
            "" if value.default is value.empty else f"={value.default!r}" if is_plain else "=..."
        )
        yield (
            f"{name} {place if value.kind < value.VAR_POSITIONAL else 'keyword'}: "
            f"{value.name}{default}"
        )


if __name__ == "__main__":
    print(*names(), sep="\n")
