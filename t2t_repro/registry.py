"""Names that tie together problems, hparams sets and models.

    @registry.register_problem
    class MyCorpus(TextProblem): ...       # --problem=my_corpus, and --problem=my_corpus_rev for the other way round

    @registry.register_hparams
    def transformer_mine() -> HParams: ... # --hparams_set=transformer_mine

    @registry.register_model
    class MyModel(keras.Model): ...        # model="my_model" in an hparams set

The name may be given, `@registry.register_problem("other_name")`; else it is the object's own in snake_case. Nothing
here imports TensorFlow, so the list of names is quick to print.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from t2t_repro.errors import UserError, unknown

if TYPE_CHECKING:
    from t2t_repro.hparam import HParams
    from t2t_repro.problem import Problem

T = TypeVar("T", bound=Callable[..., Any])

BUILT_IN = ("t2t_repro.problems", "t2t_repro.hparams", "t2t_repro.models")
REVERSED = "_rev"


def snake_case(name: str) -> str:
    """`name` with words in lower case joined by underscores: "TextFiles" -> "text_files", "WMTEnde" -> "wmt_ende"."""
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z\d])([A-Z])", r"\1_\2", name).lower()


class Registry:
    """The objects of one kind by name."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._objects: dict[str, Any] = {}

    def register(self, name_or_object: str | T | None = None) -> Any:
        """Decorator that registers a class or function; usable bare, with `()`, or with a name.

        Raises:
            UserError: the name is taken, or is a problem's that ends in "_rev".
        """
        if name_or_object is None or isinstance(name_or_object, str):
            return lambda target: self._add(name_or_object or snake_case(target.__name__), target)
        return self._add(snake_case(name_or_object.__name__), name_or_object)

    def _add(self, name: str, target: T) -> T:
        if self.kind == "problem" and name.endswith(REVERSED):
            raise UserError(f"problem {name!r}: names that end in {REVERSED!r} are made by reversing; choose another")
        if name in self._objects:
            where = f"{self._objects[name].__module__}.{self._objects[name].__qualname__}"
            raise UserError(f"{self.kind} {name!r} is registered already, by {where}; choose another name")
        self._objects[name] = target
        return target

    def get(self, name: str) -> Any:
        """The object registered as `name`.

        Raises:
            UserError: there is none; the nearest name is offered.
        """
        import_built_in()
        if name not in self._objects:
            raise unknown(self.kind, name, self._objects)
        return self._objects[name]

    def names(self) -> list[str]:
        """All registered names."""
        import_built_in()
        return sorted(self._objects)

    def help(self) -> str:
        """One line a name: the name and the first line of its docstring."""
        names = self.names()
        width = max(map(len, names), default=0)
        lines = [f"{self.kind}s:"]
        for name in names:
            summary = inspect.cleandoc(self._objects[name].__doc__ or "").partition("\n")[0]
            lines.append(f"  {name:{width}}  {summary}".rstrip())
        return "\n".join(lines)


_problems = Registry("problem")
_hparams = Registry("hparams set")
_models = Registry("model")

register_problem = _problems.register
register_hparams = _hparams.register
register_model = _models.register


def problem_class(name: str) -> type[Problem]:
    """The class registered for problem `name`; a "_rev" at the end is left aside."""
    base_name = name.removesuffix(REVERSED)
    if base_name not in _problems.names():
        raise unknown("problem", name, _problems.names())
    found: type[Problem] = _problems.get(base_name)
    return found


def problem(name: str, settings: dict[str, Any] | None = None) -> Problem:
    """The problem `name`, reversed where the name ends in "_rev".

    Args:
        settings: values for the fields of the problem's `Settings`; those not given keep their defaults.

    Raises:
        UserError: an unknown name, or settings that the problem refuses.
    """
    return problem_class(name)(settings or {}, was_reversed=name.endswith(REVERSED), name=name.removesuffix(REVERSED))


def hparams(name: str) -> HParams:
    """The hparams set `name`.

    Raises:
        UserError: an unknown name, or a function that returned no HParams.
    """
    from t2t_repro.hparam import HParams

    result = _hparams.get(name)()
    if not isinstance(result, HParams):
        raise UserError(f"hparams set {name!r} returned {result!r}; its function must return HParams")
    return result


def model(name: str) -> Callable[..., Any]:
    """The class or factory registered as model `name`; see t2t_repro/models for its arguments."""
    return _models.get(name)


def help_text() -> str:
    """All problems, hparams sets and models, one line each."""
    return "\n\n".join(registry.help() for registry in (_problems, _hparams, _models))


def import_built_in() -> None:
    """Imports the packages whose modules register our own names."""
    for package in BUILT_IN:
        importlib.import_module(package)


def import_usr_dir(directory: str) -> None:
    """Imports the package in `directory` (--t2t_usr_dir), whose modules register a user's own names.

    Raises:
        UserError: no such folder, no `__init__.py` in it, or code that fails, with its file and line.
    """
    if not directory:
        return
    folder = Path(directory).expanduser().resolve()
    if not (folder / "__init__.py").is_file():
        raise UserError(f"--t2t_usr_dir={directory}: no __init__.py there; it must import your modules")
    if not folder.name.isidentifier():
        raise UserError(
            f"--t2t_usr_dir={directory}: {folder.name!r} is no name for a Python package; rename the folder"
        )
    if folder.name in sys.modules:
        raise UserError(f"--t2t_usr_dir={directory}: a package named {folder.name!r} is loaded already; rename yours")
    import_built_in()
    sys.path.insert(0, str(folder.parent))
    try:
        importlib.import_module(folder.name)
    except Exception as error:
        inside = [frame for frame in traceback.extract_tb(error.__traceback__) if str(folder) in frame.filename]
        place = f"{inside[-1].filename}:{inside[-1].lineno}" if inside else str(folder)
        if isinstance(error, SyntaxError) and error.filename:
            place = f"{error.filename}:{error.lineno}"
        raise UserError(f"--t2t_usr_dir: {place}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(folder.parent))
