"""Tests that each of 2,880 damaged or hostile files is either read, or refused with a one-line error."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from damage import Damage, outcome
from models import write_checkpoint
from t2t_repro.checkpoints.checkpoint_files import keep_only
from t2t_repro.checkpoints.model_folder import ModelFolder, Origin
from t2t_repro.checkpoints.reader import read_checkpoint
from t2t_repro.data.datagen import generate_data
from t2t_repro.data.dataset import load_data
from t2t_repro.data.vocabularies.kinds import load_vocabulary
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding.journal import Journal
from t2t_repro.decoding.output import json_line
from t2t_repro.decoding.translation import Hypothesis, Translation
from t2t_repro.hparam import HParams
from t2t_repro.paper.results import Results, read_results, training_results, write_results
from t2t_repro.training.metrics_log import MetricsLog
from toys import text_files

VOCABULARY = "vocab.numbers_ende.512.model"
OUTPUT = "x.de-00001-of-00002"
SHARD = "text_files-train-00001-of-00010"
DONE = Translation((Hypothesis("ein", -0.5, (7, 1), (-0.1, -0.4), (0, 1)), Hypothesis("", -1e-9)), (8, 1), segments=2)


def read_data(folder: Path) -> None:
    """Reads all records of the folder's data."""
    data = load_data(str(folder), "text_files")
    for records in data.records.values():
        for number in range(len(records)):
            assert all(ids.min() >= 0 and ids.max() < data.vocabulary.size for ids in records[number] if len(ids))


def read_vocabulary(folder: Path) -> None:
    """Loads the vocabulary of the model folder, and encodes and decodes a line with it."""
    vocabulary = ModelFolder(folder).vocabulary
    vocabulary.pieces(range(vocabulary.size))
    assert len(vocabulary.decode(vocabulary.encode(["the dog \u00fc\u6f22"]))) == 1


def read_journal(folder: Path) -> None:
    """Reads the journal of an interrupted decode, and formats its translations as --output_format=jsonl does."""
    with Journal(folder / OUTPUT, "settings", resume=True) as journal:
        for translation in journal.done.values():
            json_line("source", translation, load_vocabulary(folder / VOCABULARY), has_attention=True)


def read_weights(folder: Path) -> None:
    """Reads the latest checkpoint of the model folder."""
    assert read_checkpoint(ModelFolder(folder).checkpoint()).step == 5


@dataclass(frozen=True)
class Kind:
    """A kind of file, and how it is damaged and read."""

    name: str
    """Name of the file in the folder."""
    cases: int
    """Number of damaged versions that the test tries."""
    read: Callable[[Path], object]
    """Reads the folder as the programs do."""
    damage: Callable[[Damage, bytes], bytes] = Damage.bytes
    """Draws a damaged version of the file's contents."""
    may_change: str = ""
    """Suffix of the files that a program may write although it then refuses the folder."""
    is_needed: bool = True
    """False if programs skip or replace a damaged file of this kind."""


def json_object(damage: Damage, contents: bytes) -> bytes:
    """Draws a damaged version of a JSON file."""
    return damage.json(contents.decode())


KINDS = (
    Kind("hparams.json", 400, ModelFolder, damage=json_object),
    Kind("problem.json", 400, ModelFolder, damage=json_object),
    Kind(VOCABULARY, 400, read_vocabulary),
    Kind("text_files.json", 400, read_data, damage=json_object),
    Kind(SHARD, 200, read_data, may_change=".index"),  # the index is made again if it does not match the shard
    Kind(f"{SHARD}.index", 200, read_data, is_needed=False),
    Kind(f"{OUTPUT}.unfinished", 300, read_journal, damage=Damage.json_line),
    Kind("metrics.jsonl", 200, training_results, damage=Damage.json_line, is_needed=False),
    Kind("results.json", 200, read_results, damage=json_object),
    Kind("checkpoint", 20, read_weights, is_needed=False),
    Kind("model.ckpt-5.index", 80, read_weights),
    Kind("model.ckpt-5.data-00000-of-00001", 80, read_weights),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_hparams: HParams, tiny_vocabulary: Vocabulary) -> Path:
    """A folder that is a model folder and a data directory, with a journal."""
    folder: Path = tmp_path_factory.mktemp("damaged")
    ModelFolder.create(folder, tiny_hparams, tiny_vocabulary, Origin("numbers_ende", {}, VOCABULARY, "0123456789ab", 1))
    generate_data(text_files(tmp_path_factory.mktemp("text")), folder, "")
    with Journal(folder / OUTPUT, "settings", resume=False) as journal:
        for number in range(3):
            journal.add(number, DONE)
    log = MetricsLog(folder, 0)
    log.add(5, seconds=1.5, train_loss=2.0, hardware="A", gpu_count=2)
    log.add(5, dev_loss=1.0, dev_perplexity=2.5)
    write_results(folder, Results(steps=5, bleu={"wmt14": 27.3}, signatures=["wmt14: x"]))
    weights = {"a/b": tf.Variable(np.ones((8, 4), np.float32)), "c": tf.Variable(np.ones(16, np.float32))}
    write_checkpoint(folder, 5, weights, tiny_vocabulary.fingerprint)
    keep_only(folder, [str(folder / "model.ckpt-5")])
    return folder


def status(folder: Path) -> dict[str, tuple[int, int]]:
    """Returns size and time of the last change of each file in a folder, by name."""
    return {entry.name: (entry.stat().st_size, entry.stat().st_mtime_ns) for entry in os.scandir(folder)}


@pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning")  # NumPy warns at some damaged headers
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_damaged_file_is_read_or_refused_in_one_line(
    kind: Kind, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage, contents = Damage(1), {path: path.read_bytes() for path in folder.iterdir()}
    damaged_file = folder / kind.name
    assert outcome(lambda: kind.read(folder), capsys) == 0
    codes = []
    for _ in range(kind.cases):
        original = contents[damaged_file]
        damaged_file.write_bytes(kind.damage(damage, original))
        before = status(folder)
        codes.append(outcome(lambda: kind.read(folder), capsys))
        changed = dict(status(folder).items() - before.items()).keys() | (before.keys() - status(folder).keys())
        if codes[-1]:
            assert not {name for name in changed if not (kind.may_change and name.endswith(kind.may_change))}
        for name in {kind.name, *changed}:
            (folder / name).write_bytes(contents[folder / name])
    assert codes.count(2) >= kind.cases // 4 if kind.is_needed else codes.count(0) >= 0.99 * kind.cases
