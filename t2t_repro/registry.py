"""Registers problems, hparams sets and models by name.

    @registry.register_problem
    class MyCorpus(Problem): ...  # --problem=my_corpus; my_corpus_rev is the other direction

    @registry.register_hparams
    def transformer_mine() -> HParams: ...  # --hparams_set=transformer_mine

    @registry.register_model
    class MyModel(keras.Model): ...  # model="my_model" in an hparams set

The default name is the name of the class or function in snake_case.
`@registry.register_problem("other_name")` sets another name. This module does not import
TensorFlow, so that the programs can list the names quickly.
"""

import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from t2t_repro.console.terminal import definitions
from t2t_repro.errors import UserError, located, refuse_unknown, unknown
from t2t_repro.hparam import HParams, assignments, typed
from t2t_repro.problem import Problem

T = TypeVar("T", bound=Callable[..., Any])

BUILT_IN = (
    "t2t_repro.problems",
    "t2t_repro.hparams",
    "t2t_repro.models",
    "t2t_repro.annexes",
)
"""Modules that register names when they are imported."""
REVERSED = "_rev"
"""Suffix of a problem's name: my_corpus_rev is my_corpus with source and target swapped."""
UNEXPECTED_FIELD = re.compile(r"HParams\.__init__\(\) got an unexpected keyword argument '(\w+)'")
"""Matches Python's error for an unknown field of `HParams` or a subclass."""


def snake_case(name: str) -> str:
    """Returns `name` in lower case, with underscores between words: "TextFiles" -> "text_files".

    As in tensor2tensor, whose data has the problem's name, "MyBPE32k" becomes "my_bp_e32k".
    """
    name = re.sub(r"(.)([A-Z][a-z\d]+)", r"\1_\2", name)
    return re.sub(r"([a-z\d])([A-Z])", r"\1_\2", name).lower()


class Registry:
    """Maps names to the registered classes or functions of one kind, e.g. "problem".

    No name may end in `reserved_suffix`, if it is not "".
    """

    def __init__(self, kind: str, reserved_suffix: str = "") -> None:
        self.kind = kind
        self._reserved_suffix = reserved_suffix
        self._objects: dict[str, Any] = {}

    def register(self, name_or_object: str | T | None = None) -> Any:
        """Decorator that registers a class or function: `@register`, `@register()` or
        `@register("name")`.

        Raises UserError if the name is taken, ends in the reserved suffix, or cannot be part of a
        file name.
        """
        if name_or_object is None or isinstance(name_or_object, str):
            return lambda target: self._add(name_or_object or snake_case(target.__name__), target)
        return self._add(snake_case(name_or_object.__name__), name_or_object)

    def _add(self, name: str, target: T) -> T:
        if self._reserved_suffix and name.endswith(self._reserved_suffix):
            raise UserError(
                f"{self.kind} {name!r}: names ending in {self._reserved_suffix!r} are reserved; "
                "rename it"
            )
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise UserError(
                f"{self.kind} {name!r}: use only letters, digits, '_', '-' and '.' in a name"
            )
        if name in self._objects:
            owner = self._objects[name].__module__
            raise UserError(
                f"{self.kind} {name!r} is registered already, by {owner}; choose another name"
            )
        self._objects[name] = target
        return target

    def name_of(self, target: Any) -> str:
        """Returns the name of a registered class or function; for another, its default name."""
        names = (name for name, registered in self._objects.items() if registered is target)
        return next(names, snake_case(target.__name__))

    def get(self, name: str) -> Any:
        """Returns the object registered as `name`; raises UserError if the name is unknown."""
        import_built_in()
        refuse_unknown(self.kind, name, self._objects)
        return self._objects[name]

    def names(self) -> list[str]:
        """Returns all registered names, sorted."""
        import_built_in()
        return sorted(self._objects)

    def help(self) -> str:
        """Returns the help text: one line for each name, with the first line of the registered
        object's docstring.
        """
        lines = {}
        for name in self.names():
            docstring = inspect.cleandoc(self._objects[name].__doc__ or "")
            lines[f"  {name}"] = docstring.partition("\n")[0]
        return f"{self.kind}s:\n{definitions(lines)}"


_problems = Registry("problem", reserved_suffix=REVERSED)
_hparams = Registry("hparams set")
_models = Registry("model")

_usr_dir = ""
"""The folder that `import_usr_dir` imported last; "" if there was none."""

register_problem = _problems.register
"""Decorator that registers a problem's class; see `Registry.register`."""
register_hparams = _hparams.register
"""Decorator that registers a function that returns an hparams set; see `Registry.register`."""
register_model = _models.register
"""Decorator that registers a class or function that builds a model; see `Registry.register`."""


def problem_class(name: str) -> type[Problem]:
    """Returns the class of the problem `name`. A suffix "_rev" of `name` is ignored."""
    return _problems.get(name.removesuffix(REVERSED))


problem_name = _problems.name_of
"""Function that returns the name of a problem's class; see `Registry.name_of`."""


def has_problem(name: str) -> bool:
    """Returns True if the problem `name` is registered. A suffix "_rev" of `name` is ignored."""
    return name.removesuffix(REVERSED) in _problems.names()


def problem(name: str, settings: dict[str, Any] | None = None) -> Problem:
    """Returns the problem `name`, reversed if the name ends in "_rev".

    `settings` has values for fields of the problem's `Settings`. Raises UserError if a name or a
    value is invalid.
    """
    base_name = name.removesuffix(REVERSED)
    return problem_class(name)(settings or {}, was_reversed=name != base_name, name=base_name)


def hparams(name: str) -> HParams:
    """Returns the hparams set `name`, as an instance of the hparams class of its model.

    Raises UserError if the name is unknown, or if its function fails or does not return HParams
    that fit its model.
    """
    make = _hparams.get(name)
    try:
        result = make()
    except Exception as error:
        mistake = error
        if match := UNEXPECTED_FIELD.search(str(error)):
            mistake = unknown("field of HParams", match[1], vars(HParams()))
            mistake = mistake.with_traceback(error.__traceback__)
        cure = ""
        # AttributeError is also the error for changes in place, as tensor2tensor's sets make them.
        if isinstance(error, AttributeError):
            cure = "; return dataclasses.replace(hparams, name=value)"
        raise UserError(f"hparams set {name!r}: {located(mistake)}{cure}") from mistake
    if not isinstance(result, HParams):
        raise UserError(
            f"hparams set {name!r} returned {result!r}; its function must return HParams"
        )
    try:
        return for_model(result)
    except UserError as error:
        raise UserError(f"hparams set {name!r}: {error}") from error


def model(name: str) -> Callable[..., Any]:
    """Returns the class or function that builds model `name`; docs/write_your_own_model.md
    describes its arguments.
    """
    return _models.get(name)


def has_model(name: str) -> bool:
    """Returns True if the model `name` is registered."""
    return name in _models.names()


def hparams_class(model_name: str) -> type[Any]:
    """Returns the class of a model's hparams: its attribute `hparams_class`, or `HParams` if it has
    none.
    """
    return getattr(model(model_name), "hparams_class", HParams)


def for_model(hparams: HParams) -> HParams:
    """Returns the hparams as an instance of the hparams class of the model `hparams.model`.

    Raises UserError if the model is unknown or does not use an hparam that is not at its default.
    """
    kind: type[HParams] = hparams_class(hparams.model)
    return hparams if type(hparams) is kind else kind.of(hparams)


def override_hparams(hparams: HParams, text: str | Mapping[str, str], **values: Any) -> HParams:
    """Returns the hparams with the changes in `text` and in `values`, which have precedence.

    `text` is the value of --hparams, or what `assignments` returned for it. If the model changes,
    the result has the hparams class of the new model, and `text` may have hparams of this model.

    Raises UserError if a name is unknown, a value is wrong, or the model does not use an hparam
    that is not at its default.
    """
    texts = assignments(text) if isinstance(text, str) else text
    name = values.get("model") or texts.get("model") or hparams.model
    kind: type[HParams] = hparams_class(name)
    return kind.of(hparams, **typed(kind, texts) | {"model": name} | values)


def names() -> dict[str, list[str]]:
    """Returns the registered names of each kind: "problem", "hparams_set" and "model"."""
    return {
        registry.kind.replace(" ", "_"): registry.names()
        for registry in (_problems, _hparams, _models)
    }


def help_text() -> str:
    """Returns the text of --registry_help: all problems, hparams sets and models."""
    return "\n\n".join(registry.help() for registry in (_problems, _hparams, _models))


def import_built_in() -> None:
    """Imports the packages in `BUILT_IN`, so that they register this project's names."""
    for package in BUILT_IN:
        importlib.import_module(package)


def import_usr_dir(directory: str) -> None:
    """Imports the package in `directory` (--t2t_usr_dir), which registers user-defined names;
    nothing if it is "".

    Raises UserError if the folder is not a package, or its name is taken, or its code raises an
    error.
    """
    global _usr_dir
    _usr_dir = ""
    if not directory:
        return
    folder = Path(os.path.realpath(os.path.expanduser(directory)))
    if not (folder / "__init__.py").is_file():
        raise UserError(
            f"--t2t_usr_dir={directory}: no __init__.py there; write one that imports your modules"
        )
    if folder.name in sys.modules:
        raise UserError(
            f"--t2t_usr_dir={directory}: a package named {folder.name!r} is loaded already; "
            "rename yours"
        )
    import_built_in()
    sys.path.insert(0, str(folder.parent))
    try:
        importlib.import_module(folder.name)
    except Exception as error:
        raise UserError(f"--t2t_usr_dir={directory}: {located(error)}") from error
    finally:
        sys.path.remove(str(folder.parent))
    _usr_dir = str(folder)


def usr_dir() -> str:
    """Returns the folder that `import_usr_dir` imported; "" if there was none."""
    return _usr_dir
