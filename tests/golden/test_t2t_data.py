"""Tests that data that tensor2tensor's t2t-datagen wrote is read as the text from which it was made."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from t2t_repro.data.dataset import load_data
from t2t_repro.errors import UserError

MODELS = Path(__file__).resolve().parents[2].parent / "shared" / "golden" / "t2t_models"
PROBLEM = "translate_ende_wmt8k"
pytestmark = pytest.mark.skipif(not MODELS.exists(), reason="../shared/golden/t2t_models does not exist")


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Returns a folder with shards and the vocabulary of translate_tatoeba1k, under the names of another problem."""
    for name, copy in (
        ("translate_tatoeba1k-train-00000-of-00004", f"{PROBLEM}-train-00000-of-00001"),
        ("translate_tatoeba1k-dev-00000-of-00001", f"{PROBLEM}-dev-00000-of-00001"),
        ("vocab.translate_tatoeba1k.1024.subwords", f"vocab.{PROBLEM}.8192.subwords"),
    ):
        shutil.copy(MODELS / "data_dir" / name, tmp_path / copy)
    return tmp_path


@pytest.mark.parametrize("is_reversed", [False, True])
def test_the_dev_split_is_the_dev_text(data_dir: Path, is_reversed: bool) -> None:
    data = load_data(str(data_dir), PROBLEM + ("_rev" if is_reversed else ""))
    assert (data.vocabulary.size, data.description.pairs) == (1014, {"train": 2000, "dev": 500})
    records = data.records["dev"]
    pairs = [tuple(data.vocabulary.decode(records[number])) for number in range(len(records))]
    texts = [(MODELS / "raw" / f"dev.{language}").read_text("utf-8").splitlines() for language in ("en", "de")]
    assert sorted(pairs) == sorted(zip(*(texts[::-1] if is_reversed else texts), strict=True))


def test_a_missing_shard_is_named(data_dir: Path) -> None:
    (data_dir / f"{PROBLEM}-train-00000-of-00001").rename(data_dir / f"{PROBLEM}-train-00000-of-00004")
    with pytest.raises(UserError, match="train-00001-of-00004: this shard is missing"):
        load_data(str(data_dir), PROBLEM)
