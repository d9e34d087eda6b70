"""Tests the file that describes generated data, and the function that loads the problem named in this file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from folders import contents
from t2t_repro import registry
from t2t_repro.data.datagen import generate_data
from t2t_repro.data.description import load_problem
from t2t_repro.data.vocabularies import sentencepiece
from t2t_repro.data.vocabularies.kinds import load_vocabulary
from toys import lines, text_files
from user_errors import user_error


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with the text files of the problem text_files. Its subfolder "data" holds the generated data."""
    folder = tmp_path_factory.mktemp("text")
    generate_data(text_files(folder), folder / "data", "")
    return folder


@pytest.fixture
def data(generated: Path, tmp_path: Path) -> Path:
    """Returns a folder with a copy of the generated data, which a test may change."""
    for name, text in contents(generated / "data").items():
        (tmp_path / name).write_bytes(text)
    return tmp_path


def load_failure(data: Path, name: str = "text_files") -> str:
    return user_error(load_problem, data, name)


def test_a_problem_is_loaded_with_the_settings_of_its_data(generated: Path) -> None:
    problem = text_files(generated)
    loaded, vocab, description = load_problem(generated / "data", "text_files")
    assert loaded.settings == problem.settings
    assert vocab.fingerprint == description.vocabulary_fingerprint
    assert (description.problem, description.vocabulary) == ("text_files", "vocab.text_files.400.model")
    assert len(description.fingerprint) == len(description.vocabulary_fingerprint) == 12
    assert not description.vocabulary_given
    stored = json.loads((generated / "data" / "text_files.json").read_text("utf-8"))
    assert stored["pairs"] == description.pairs == {"train": 40, "dev": 5}
    backward, _, same = load_problem(generated / "data", "text_files_rev")
    assert backward.was_reversed and backward.settings == problem.settings and same == description


def test_the_command_that_makes_missing_data_can_be_pasted_into_a_shell(tmp_path: Path) -> None:
    message = load_failure(tmp_path / "my $data", "numbers_ende")
    assert f"run t2t-datagen --problem=numbers_ende --data_dir='{tmp_path}/my $data'" in message


def test_missing_data_is_an_error_with_the_command_that_makes_it(data: Path, tmp_path: Path) -> None:
    message = load_failure(data, "numbers_ende")
    assert f"{data}: no data of problem 'numbers_ende' (it holds text_files)" in message
    assert f"run t2t-datagen --problem=numbers_ende --data_dir={data}" in message
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "nowhere"):
        assert f"{folder}: no data of problem 'text_files'; run t2t-datagen" in load_failure(folder)


def test_the_command_for_a_users_problem_has_the_users_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "usr_missing_data"
    folder.mkdir()
    code = """
from t2t_repro import registry
from t2t_repro.problems.text_problems import Text2TextProblem

@registry.register_problem
class Recipes(Text2TextProblem):
    approx_vocab_size = 300
"""
    (folder / "__init__.py").write_text(code)
    monkeypatch.setattr(registry._problems, "_objects", dict(registry._problems._objects))
    monkeypatch.setattr(registry, "_usr_dir", "")  # restored at the end of the test
    registry.import_usr_dir(str(folder))
    command = f"run t2t-datagen --t2t_usr_dir={folder} --problem=recipes --data_dir={tmp_path}"
    assert load_failure(tmp_path, "recipes").endswith(command)


def test_a_replaced_or_missing_vocabulary_is_named(data: Path) -> None:
    path = data / "vocab.text_files.400.model"
    original, other = load_vocabulary(path), sentencepiece.train(lines(100), 300)
    other.save(path)
    message = load_failure(data)
    assert other.fingerprint in message and original.fingerprint in message and str(path) in message
    os.unlink(path)
    assert f"{path}: no such vocabulary" in load_failure(data)


def change(**fields: Any) -> Callable[[bytes], bytes]:
    """Returns a function that sets `fields` in a description's JSON, and deletes the fields whose value is None."""

    def changed(text: bytes) -> bytes:
        remaining = {name: value for name, value in (json.loads(text) | fields).items() if value is not None}
        return json.dumps(remaining).encode()

    return changed


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda text: b"", id="empty"),
        pytest.param(lambda text: text[:-20], id="truncated"),
        pytest.param(lambda text: b"[]", id="not an object"),
        pytest.param(lambda text: b"\xff\xfe{}", id="not UTF-8"),
        pytest.param(change(vocabulary=None), id="missing field"),
        pytest.param(change(pairs=3), id="field of another type"),
        pytest.param(change(colour="red"), id="unknown field"),
    ],
)
def test_a_damaged_description_is_named(data: Path, damage: Callable[[bytes], bytes]) -> None:
    path = data / "text_files.json"
    path.write_bytes(damage(path.read_bytes()))
    assert f"{path}:" in load_failure(data)
