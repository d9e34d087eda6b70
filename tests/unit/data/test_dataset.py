"""Tests that generated data is opened only if its files are from one run of datagen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from folders import contents, put
from t2t_repro.data.datagen import generate_data
from t2t_repro.data.dataset import load_data
from t2t_repro.data.records import index_path
from t2t_repro.errors import UserError
from toys import text_files


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, bytes]]:
    """Returns the files of two runs of generate_data on the same text, with vocabularies of different sizes."""
    folder = tmp_path_factory.mktemp("text")
    for size in (400, 300):
        problem = text_files(folder)
        problem.settings = type(problem.settings)(**vars(problem.settings) | {"vocab_size": size})
        generate_data(problem, folder / f"{size}", "")
    return [contents(folder / f"{size}") for size in (400, 300)]


SHARD = "text_files-train-00003-of-00010"


@pytest.mark.parametrize("names", [{SHARD, f"{SHARD}.index"}, {SHARD}, {"text_files-dev-00000-of-00001"}])
def test_a_shard_of_another_run_is_refused(tmp_path: Path, runs: list[dict[str, bytes]], names: set[str]) -> None:
    first, second = runs
    assert first[SHARD] != second[SHARD]
    put(first, tmp_path)
    assert len(load_data(str(tmp_path), "text_files").records["train"]) == 40
    put({name: second[name] for name in names}, tmp_path)
    with pytest.raises(UserError, match=r"not the shard that .*/text_files\.json describes; copy the shards and"):
        load_data(str(tmp_path), "text_files")


def test_a_shard_without_its_index_is_opened(tmp_path: Path, runs: list[dict[str, bytes]]) -> None:
    put(runs[0], tmp_path)
    index_path(tmp_path / SHARD).unlink()
    load_data(str(tmp_path), "text_files_rev")


@pytest.mark.parametrize("has_shards", [False, True])
def test_data_of_an_older_datagen_is_opened(tmp_path: Path, runs: list[dict[str, bytes]], has_shards: bool) -> None:
    put(runs[0], tmp_path)
    path = tmp_path / "text_files.json"
    description = json.loads(path.read_text("utf-8"))
    for figures in description["shards"].values():
        del figures["rows_sha256"]
    if not has_shards:
        del description["source_fingerprint"], description["shards"]
    path.write_text(json.dumps(description), "utf-8")
    load_data(str(tmp_path), "text_files")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("shards", {SHARD: 3}, f"shards: {SHARD} has 3, not the hashes and counts of a shard"),
        ("pairs", {"train": 40}, "pairs=.* must give the number of pairs for train and dev"),
        ("pairs", {"train": "40", "dev": 5}, "pairs=.* must give the number of pairs"),
        ("vocabulary", "../vocab.text_files.400.model", "must be the name of a file in the same folder"),
        ("vocabulary", "/dev/zero", "must be the name of a file in the same folder"),
    ],
)
def test_a_description_with_values_of_a_wrong_type_is_refused(
    tmp_path: Path, runs: list[dict[str, bytes]], field: str, value: object, message: str
) -> None:
    put(runs[0], tmp_path)
    path = tmp_path / "text_files.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | {field: value}), "utf-8")
    with pytest.raises(UserError, match=message) as error:
        load_data(str(tmp_path), "text_files")
    assert str(error.value).startswith(f"{path}: ")
