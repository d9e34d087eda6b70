"""Tests that problems, hparams sets and models are registered by name, including those in the
user's package.
"""

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from t2t_repro import registry
from t2t_repro.hparam import HParams
from t2t_repro.registry import Registry, snake_case
from user_errors import user_error

GOOD = '''
from t2t_repro import registry
from t2t_repro.hparam import HParams
from t2t_repro.problem import Problem

@registry.register_problem
class UsrCorpus(Problem):
    """Mine."""

@registry.register_hparams
def usr_hparams():
    return HParams(hidden_size=64)

@registry.register_model("usr_model")
def build(hparams, vocab_size):
    return vocab_size
'''


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """After each test, removes the modules that it imported and the names that it registered."""
    registry.import_built_in()
    registries = [registry._problems, registry._hparams, registry._models]
    path = list(sys.path)
    objects = [dict(names._objects) for names in registries]
    yield
    for name in {name for name in sys.modules if name.startswith("usr_")}:
        del sys.modules[name]
    sys.path[:] = path
    for names, before in zip(registries, objects, strict=True):
        names._objects = before
    registry._usr_dir = ""


def package(folder: Path, **modules: str) -> str:
    """Writes a package of `modules`, {name: code}, and returns the path of the package's folder."""
    folder.mkdir(parents=True)
    for name, code in modules.items():
        (folder / f"{name}.py").write_text(code, "utf-8")
    return str(folder)


def test_snake_case() -> None:
    names = {
        "TranslateEndeWmt32k": "translate_ende_wmt32k",
        "MyBPE32k": "my_bp_e32k",
        "AWMT14B": "awm_t14_b",
    }
    assert {name: snake_case(name) for name in names} == names


def test_names_that_cannot_be_registered_or_found() -> None:
    things = Registry("thing")
    assert things.register("wmt14_de-en.v2")(dict) is dict is things.get("wmt14_de-en.v2")
    assert "'wmt14_de-en.v2' is registered already, by builtins" in user_error(
        things.register("wmt14_de-en.v2"), set
    )
    for name in ("a/b", "a b", "-a", ".a", "a*", "a,b", "a\n", "\t"):
        assert "use only letters, digits" in user_error(things.register(name), dict)
    assert "names ending in '_rev'" in user_error(registry.register_problem("mine_rev"), object)
    for get, name, words in (
        (registry.problem, "text_flies", "unknown problem 'text_flies'; did you mean 'text_files'"),
        (
            registry.hparams,
            "transformer_bas",
            "unknown hparams set 'transformer_bas'; did you mean 'transformer_base'",
        ),
        (registry.model, "transfomer", "unknown model 'transfomer'; did you mean 'transformer'"),
    ):
        assert words in user_error(get, name)


def test_rev_reverses_a_problem() -> None:
    forward = registry.problem("text_files")
    backward = registry.problem("text_files_rev")
    assert type(forward) is type(backward) is registry.problem_class("text_files_rev")
    assert (forward.was_reversed, forward.name) == (False, "text_files")
    assert (backward.was_reversed, backward.name, backward.base_name) == (
        True,
        "text_files_rev",
        "text_files",
    )


def test_the_help_lists_each_name_with_the_first_line_of_its_docstring() -> None:
    sections = [section.splitlines() for section in registry.help_text().split("\n\n")]
    assert [section[0] for section in sections] == ["problems:", "hparams sets:", "models:"]
    assert re.search(
        r"^  transformer +The Transformer: stacks of", registry.help_text(), re.MULTILINE
    )
    for _, *lines in sections:
        names = [line.split()[0] for line in lines if line[2] != " "]
        assert names == sorted(names) and all(len(line) <= 80 for line in lines)


@pytest.mark.parametrize("code", ["from usr_good import mine\n", "from . import mine\n"])
def test_a_user_package_registers_its_names(tmp_path: Path, code: str) -> None:
    path = list(sys.path)
    registry.import_usr_dir(package(tmp_path / "usr_good", __init__=code, mine=GOOD) + "/")
    registry.import_usr_dir("")
    assert registry.problem("usr_corpus_rev").name == "usr_corpus_rev"
    assert registry.hparams("usr_hparams").hidden_size == 64
    assert registry.model("usr_model")(None, 7) == 7
    assert "usr_corpus" in registry.help_text()
    assert sys.path == path


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (
            lambda: HParams(hiden_size=256),
            "unknown field of HParams 'hiden_size'; did you mean 'hidden_size'?",
        ),  # type: ignore[call-arg]
        (lambda: replace(HParams(), max_length=0), "test_registry.py:"),
        (
            lambda: setattr(HParams(), "hidden_size", 64),
            "; return dataclasses.replace(hparams, name=value)",
        ),
        (lambda: {"hidden_size": 1}, "must return HParams"),
        (lambda: HParams(model="transfomer"), "did you mean 'transformer'?"),
        (
            lambda: HParams(model="gnmt", filter_size=64),
            "filter_size=64 has no effect in the model gnmt",
        ),
    ],
)
def test_a_mistake_in_a_set_is_explained(function: Callable[[], Any], words: str) -> None:
    registry.register_hparams("mistaken_set")(function)
    message = user_error(registry.hparams, "mistaken_set")
    assert message.startswith("hparams set 'mistaken_set'") and words in message


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import json\n\njson.loads('}')\n", "usr_broken/mine.py:3: JSONDecodeError: "),
        ("def f():\n    return }\n", "usr_broken/mine.py:2: SyntaxError: "),
        (
            GOOD.replace("usr_hparams", "transformer_base"),
            "usr_broken/mine.py:10: hparams set 'transformer_base' is",
        ),
    ],
)
def test_code_that_fails_is_named_by_file_and_line(tmp_path: Path, code: str, words: str) -> None:
    directory = package(tmp_path / "usr_broken", __init__="import usr_broken.mine\n", mine=code)
    assert f"{tmp_path}/{words}" in user_error(registry.import_usr_dir, directory)


def test_a_folder_that_cannot_be_imported_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for folder in (
        str(tmp_path / "nowhere"),
        str(tmp_path / "loop"),
        package(tmp_path / "usr_bare", mine=GOOD),
    ):
        assert "no __init__.py there" in user_error(registry.import_usr_dir, folder)
    assert "'json' is loaded already" in user_error(
        registry.import_usr_dir, package(tmp_path / "json", __init__="")
    )
