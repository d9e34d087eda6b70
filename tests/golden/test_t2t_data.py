"""Tests that tensor2tensor's data directories are read as the text from which they were made, and
that its user directories generate the same data here.
"""

import ast
import gzip
import shutil
from pathlib import Path

import pytest

from programs import error, succeed
from t2t_models import MODELS, NEED_MODELS
from t2t_repro.data.dataset import load_data
from t2t_repro.data.records import Records, find_shards
from t2t_repro.problems.text_problems import VocabType
from t2t_repro.problems.translate import TranslateProblem
from t2t_repro.tensor2tensor.data import load_t2t_data

PROBLEM = "translate_ende_wmt8k"
pytestmark = NEED_MODELS


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Returns a folder with shards and the vocabulary of translate_tatoeba1k, under the names of
    another problem.
    """
    for name, copy in (
        ("translate_tatoeba1k-train-00000-of-00004", f"{PROBLEM}-train-00000-of-00001"),
        ("translate_tatoeba1k-dev-00000-of-00001", f"{PROBLEM}-dev-00000-of-00001"),
        ("vocab.translate_tatoeba1k.1024.subwords", f"vocab.{PROBLEM}.8192.subwords"),
    ):
        shutil.copy(MODELS / "data_dir" / name, tmp_path / copy)
    return tmp_path


def dev_texts(is_reversed: bool) -> list[tuple[str, str]]:
    """Returns the sorted pairs of the dev split."""
    texts = [
        (MODELS / "raw" / f"dev.{language}").read_text("utf-8").splitlines()
        for language in ("en", "de")
    ]
    return sorted(zip(*(texts[::-1] if is_reversed else texts), strict=True))


@pytest.mark.parametrize("is_reversed", [False, True])
def test_the_dev_split_is_the_dev_text(data_dir: Path, is_reversed: bool) -> None:
    data = load_data(str(data_dir), PROBLEM + ("_rev" if is_reversed else ""))
    assert (data.vocabulary.size, data.description.pairs) == (1014, {"train": 2000, "dev": 500})
    records = data.records["dev"]
    pairs = [tuple(data.vocabulary.decode(records[number])) for number in range(len(records))]
    assert sorted(pairs) == dev_texts(is_reversed)


class TranslateTatoebaSep(TranslateProblem):
    """tensor2tensor's problem of this name, which has a vocabulary for each side."""

    approx_vocab_size = 2**10

    @property
    def source_vocab_name(self) -> str:
        return f"{self.vocab_filename}.en"

    @property
    def target_vocab_name(self) -> str:
        return f"{self.vocab_filename}.de"


class TranslateTatoebaBytes(TranslateProblem):
    """tensor2tensor's problem of this name, whose vocabulary is the bytes."""

    vocab_type = VocabType.CHARACTER


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize(
    ("problem_class", "sizes"),
    [(TranslateTatoebaSep, (1025, 1019)), (TranslateTatoebaBytes, (258, 258))],
)
def test_separate_vocabularies_and_bytes_are_read(
    problem_class: type[TranslateProblem], sizes: tuple[int, int], is_reversed: bool, tmp_path: Path
) -> None:
    problem = problem_class(was_reversed=is_reversed)
    for path in (MODELS / "data_dir").glob(f"*{problem.base_name}*"):
        shutil.copy(path, tmp_path / path.name.replace("00000-of-00004", "00000-of-00001"))
    data = load_t2t_data(str(tmp_path), problem)
    vocabulary = data.vocabulary
    description = data.description
    assert (vocabulary.sources.size, vocabulary.size) == (sizes[::-1] if is_reversed else sizes)
    sources, targets = zip(*(data.records["dev"][number] for number in range(500)), strict=True)
    texts = zip(vocabulary.sources.decode(sources), vocabulary.decode(targets), strict=True)
    assert sorted(texts) == dev_texts(is_reversed)
    names = ["", f"vocab.{problem.base_name}.bytes"]
    if sizes[0] != sizes[1]:
        names = [f"vocab.{problem.base_name}.1024.subwords.{language}" for language in ("en", "de")]
        if is_reversed:
            names.reverse()
    assert [description.source_vocabulary, description.vocabulary] == names


def test_a_user_directory_of_tensor2tensor_is_answered() -> None:
    message = error(
        "datagen", "--problem=translate_tatoeba1k", f"--t2t_usr_dir={MODELS / 'usr_dir'}"
    )
    for word in ("usr_dir/tatoeba.py:8: ", "generator_utils", "t2t_repro.corpora.archives.unpack"):
        assert word in message


def test_a_problem_class_generates_the_same_data_after_a_change_of_its_imports(
    tmp_path: Path,
) -> None:
    """With tensor2tensor's vocabulary in the data directory, the dev split has the ids of
    tensor2tensor's dev shard.
    """
    name = "translate_tatoeba1k"
    text = (MODELS / "usr_dir" / "tatoeba.py").read_text("utf-8")
    [code] = [
        ast.unparse(node)
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef) and node.name == "TranslateTatoeba1k"
    ]
    imports = (
        "import os\nfrom t2t_repro import problem, registry\nfrom t2t_repro.problems import "
        "text_problems\n"
    )
    directory, raw, data_dir = (tmp_path / part for part in ("usr_tatoeba", "raw", "D"))
    for folder in (directory, raw, data_dir):
        folder.mkdir(mode=0o700)
    (directory / "__init__.py").write_text(imports + code)
    shutil.copy(MODELS / "data_dir" / f"{name}-dev-00000-of-00001", tmp_path)
    for language in ("en", "de"):
        shutil.copy(MODELS / "raw" / f"dev.{language}", raw)
        (raw / f"train.{language}").write_bytes(
            gzip.decompress((MODELS / "raw" / f"train.{language}.gz").read_bytes())
        )
    shutil.copy(MODELS / "data_dir" / f"vocab.{name}.1024.subwords", data_dir)
    succeed(
        "datagen",
        f"--problem={name}",
        f"--t2t_usr_dir={directory}",
        f"--tmp_dir={raw}",
        f"--data_dir={data_dir}",
        "--num_concurrent_processes=1",
    )
    assert len(find_shards(data_dir, name, "train")) == 4
    ours, theirs = (
        sorted(tuple(side.tolist() for side in shard[number]) for number in range(len(shard)))
        for shard in (Records(find_shards(folder, name, "dev")) for folder in (data_dir, tmp_path))
    )
    assert len(ours) == 500 and ours == theirs
