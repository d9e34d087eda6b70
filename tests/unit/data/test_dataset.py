"""Tests that data is opened with its settings, and only if its files are from one run of
datagen.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from folders import contents, put
from shards import pairs_of
from t2t_repro import registry
from t2t_repro.data.datagen import generate_data
from t2t_repro.data.dataset import load_data
from t2t_repro.data.records import index_path
from t2t_repro.data.vocabularies import sentencepiece
from t2t_repro.data.vocabularies.kinds import load_vocabulary
from toys import lines, text_files
from user_errors import user_error

SHARD = "text_files-train-00003-of-00010"
DEV = "text_files-dev-00000-of-00001"
DESCRIPTION = "text_files.json"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, bytes]]:
    """Returns the files of two runs of generate_data on the same text, with vocabularies of
    different sizes.
    """
    folder = tmp_path_factory.mktemp("text")
    for size in (400, 300):
        problem = text_files(folder)
        problem.num_train_shards = 10
        problem.settings = type(problem.settings)(**vars(problem.settings) | {"vocab_size": size})
        generate_data(problem, folder / f"{size}", "")
    return [contents(folder / f"{size}") for size in (400, 300)]


@pytest.fixture
def data(runs: list[dict[str, bytes]], tmp_path: Path) -> Path:
    """Returns a folder with the files of the first run, which a test may change."""
    put(runs[0], tmp_path)
    return tmp_path


def failure(data: Path, name: str = "text_files") -> str:
    return user_error(load_data, str(data), name)


def test_data_is_opened_with_its_settings_in_both_directions(data: Path, tmp_path: Path) -> None:
    index_path(data / SHARD).unlink()
    loaded = load_data(str(data), "text_files")
    stored = json.loads((data / DESCRIPTION).read_text("utf-8"))
    assert vars(loaded.problem.settings) == stored["settings"]
    assert loaded.problem.settings.vocab_size == 400
    assert loaded.vocabulary.fingerprint == loaded.description.vocabulary_fingerprint
    sizes = {split: len(records) for split, records in loaded.records.items()}
    assert sizes == {"train": 40, "dev": 5}
    backward = load_data(str(data), "text_files_rev")
    assert backward.problem.was_reversed and backward.description == loaded.description
    source, target = pairs_of(loaded.records["dev"])[3]
    assert pairs_of(backward.records["dev"])[3] == (target, source)


@pytest.mark.parametrize(
    "names", [{SHARD}, {DEV, f"{DEV}.index"}, {DESCRIPTION, "vocab.text_files.300.model"}]
)
def test_a_file_of_another_run_is_refused(
    data: Path, runs: list[dict[str, bytes]], names: set[str]
) -> None:
    put({name: runs[1][name] for name in names}, data)
    message = failure(data)
    assert "are not those that" in message and "text_files.json describes" in message


def test_missing_data_is_an_error_with_the_command_that_makes_it(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_usr_dir", "")
    assert f"{data}: no data of problem 'numbers_ende' (it holds text_files)" in failure(
        data, "numbers_ende"
    )
    message = failure(tmp_path / "my $data", "numbers_ende")
    assert f"run t2t-datagen --problem=numbers_ende --data_dir='{tmp_path}/my $data'" in message
    monkeypatch.setattr(registry, "_usr_dir", "usr")
    assert "run t2t-datagen --t2t_usr_dir=usr --problem=wmt_ende --data_dir=" in failure(
        data, "wmt_ende"
    )


def test_a_replaced_or_missing_vocabulary_is_named(data: Path) -> None:
    path = data / "vocab.text_files.400.model"
    original = load_vocabulary(path)
    other = sentencepiece.train(lines(100), 300)
    other.save(path)
    message = failure(data)
    assert other.fingerprint in message and original.fingerprint in message and str(path) in message
    path.unlink()
    assert f"{path}: no such vocabulary" in failure(data)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"pairs": {"train": "40", "dev": 5}}, "pairs="),
        ({"vocabulary": "vocab.a/../../b.model"}, "must be the name of a file in the same folder"),
        ({"vocabulary": "vocab.a\0.model"}, "must be the name of a file in the same folder"),
        ({"vocabulary": "hparams.json"}, "must be the name of a file in the same folder"),
        ({"source_vocabulary": "/dev/zero"}, "must be the name of a file in the same folder"),
    ],
)
def test_a_description_with_a_wrong_field_is_refused(
    data: Path, fields: dict[str, Any], named: str
) -> None:
    stored = json.loads((data / DESCRIPTION).read_text("utf-8"))
    (data / DESCRIPTION).write_text(json.dumps(stored | fields), "utf-8")
    assert failure(data).startswith(f"{data / DESCRIPTION}: ") and named in failure(data)
