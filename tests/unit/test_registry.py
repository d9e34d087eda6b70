"""Tests that problems, hparams sets and models are registered by name, including those in the user's package."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from t2t_repro import registry
from t2t_repro.errors import UserError
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
    """After each test, removes the modules that the test imported and the names that it registered."""
    registry.import_built_in()
    registries = [registry._problems, registry._hparams, registry._models]
    path, objects = list(sys.path), [dict(names._objects) for names in registries]
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


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("TextFiles", "text_files"),
        ("TranslateEndeWmt32k", "translate_ende_wmt32k"),
        ("MyBPE32k", "my_bp_e32k"),
        ("TranslateWMT14Ende", "translate_wm_t14_ende"),
        ("transformer_base", "transformer_base"),
        ("ABC", "abc"),
    ],
)
def test_snake_case(name: str, expected: str) -> None:
    assert snake_case(name) == expected


def test_a_name_that_is_taken_is_refused_with_its_owner() -> None:
    things = Registry("thing")

    @things.register("one")
    class Owner: ...

    with pytest.raises(UserError, match=r"thing 'one' is registered already, by .*test_registry;"):
        things.register("one")(dict)
    assert things.get("one") is Owner


def test_a_problem_name_must_not_end_in_rev() -> None:
    with pytest.raises(UserError, match="names that end in '_rev'"):
        registry.register_problem("mine_rev")(object)
    Registry("model").register("mine_rev")(object)


def test_the_nearest_name_is_offered_for_an_unknown_one() -> None:
    with pytest.raises(UserError, match="unknown problem 'text_flies'; did you mean 'text_files'"):
        registry.problem("text_flies")
    with pytest.raises(UserError, match="unknown hparams set 'transformer_bas'; did you mean 'transformer_base'"):
        registry.hparams("transformer_bas")
    with pytest.raises(UserError, match="unknown model 'transfomer'; did you mean 'transformer'"):
        registry.model("transfomer")


def test_rev_reverses_a_problem() -> None:
    forward, backward = registry.problem("text_files"), registry.problem("text_files_rev")
    assert type(forward) is type(backward) is registry.problem_class("text_files_rev")
    assert (forward.was_reversed, forward.name) == (False, "text_files")
    assert (backward.was_reversed, backward.name, backward.base_name) == (True, "text_files_rev", "text_files")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hiden_size": 256}, "unknown field of HParams 'hiden_size'; did you mean 'hidden_size'?"),
        ({"batch_size": 1e3}, "batch_size=1000.0 must be of type int"),
        ({"max_length": 0}, "max_length=0 must be in 1 .. 2147483647"),
    ],
)
def test_a_mistake_in_a_set_is_named_with_its_line(change: dict[str, Any], words: str) -> None:
    registry.register_hparams("mistaken_set")(lambda: dataclasses.replace(HParams(), **change))
    message = user_error(registry.hparams, "mistaken_set")
    assert re.match(rf"hparams set 'mistaken_set': {__file__}:\d+: ", message) and words in message


def test_the_help_lists_each_name_with_the_first_line_of_its_docstring() -> None:
    registry.register_hparams("aaa_set")(registry._hparams.get("transformer_base"))
    sections = {}
    for section in registry.help_text().split("\n\n"):
        title, *lines = section.splitlines()
        sections[title] = dict(line.split(maxsplit=1) for line in lines)
    assert list(sections) == ["problems:", "hparams sets:", "models:"]
    assert sections["problems:"]["text_files"].startswith("Your own parallel text")
    assert sections["models:"]["transformer"].startswith("The Transformer: ")
    sets = sections["hparams sets:"]
    assert sets["aaa_set"] == sets["transformer_base"]
    assert list(sets) == sorted(sets)


def test_listing_the_names_does_not_import_tensorflow() -> None:
    code = (
        f"import json, sys; sys.path[:] = {sys.path!r}\n"
        "from t2t_repro import registry; text = registry.help_text()\n"
        "heavy = [name for name in ('tensorflow', 'keras', 'tensorflow_text') if name in sys.modules]\n"
        "print(json.dumps([text, heavy]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    text, heavy = json.loads(done.stdout)
    assert "numbers_ende" in text
    assert heavy == []


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


def test_a_folder_without_init_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for folder in (str(tmp_path / "nowhere"), str(tmp_path / "loop"), package(tmp_path / "usr_bare", mine=GOOD)):
        assert "no __init__.py there" in user_error(registry.import_usr_dir, folder)
    assert "'json' is loaded already" in user_error(registry.import_usr_dir, package(tmp_path / "json", __init__=""))


@pytest.mark.parametrize(
    ("code", "line", "message"),
    [
        ("x = 1\n\nx / 0\n", 3, "ZeroDivisionError: division by zero"),
        ("def f():\n    return }\n", 2, "SyntaxError"),
        ("import json\n\njson.loads('}')\n", 3, "JSONDecodeError"),
    ],
)
def test_code_that_fails_is_named_by_file_and_line(tmp_path: Path, code: str, line: int, message: str) -> None:
    directory = package(tmp_path / "usr_broken", __init__="import usr_broken.mine\n", mine=code)
    failure = user_error(registry.import_usr_dir, directory)
    assert f"{directory}/mine.py:{line}: " in failure
    assert message in failure


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda: setattr(HParams(), "hidden_size", 64), "return dataclasses.replace(hparams, name="),
        (lambda: HParams().add_hparam("x", 1), "return dataclasses.replace(hparams, name="),  # type: ignore[attr-defined]
        (lambda: HParams().hidden_sise, "no attribute 'hidden_sise'"),  # type: ignore[attr-defined]
        (lambda: {"hidden_size": 1}, "must return HParams"),
        (lambda: HParams(model="transfomer"), "did you mean 'transformer'?"),
        (lambda: HParams(model="gnmt", filter_size=64), "filter_size=64 has no effect in the model gnmt"),
    ],
)
def test_other_mistakes_in_a_set_are_explained(function: Callable[[], Any], words: str) -> None:
    registry.register_hparams("mistaken_set")(function)
    message = user_error(registry.hparams, "mistaken_set")
    assert message.startswith("hparams set 'mistaken_set'") and words in message


def test_a_user_name_that_is_taken_is_an_error(tmp_path: Path) -> None:
    code = "from t2t_repro import registry\n\n@registry.register_hparams\ndef transformer_base():\n    pass\n"
    message = user_error(registry.import_usr_dir, package(tmp_path / "usr_taken", __init__=code))
    assert "usr_taken/__init__.py:3" in message
    assert "hparams set 'transformer_base' is registered already" in message


@pytest.mark.parametrize("name", ["", "a/b", "a b", "-a", ".a", "a*", "a,b", "a\n"])
def test_a_name_that_file_names_and_flags_cannot_contain_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="use only letters, digits"):
        Registry("thing").register(name or "\t")(dict)
    assert Registry("thing").register("wmt14_de-en.v2")(dict) is dict
