"""Tests that a hostile model folder is refused before a program hangs, fills the memory or reads other files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import tensorflow as tf

from models import weights_of, write_checkpoint
from programs import error
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.data.description import Description
from t2t_repro.errors import UserError
from t2t_repro.files.json_file import to_json
from t2t_repro.models.transformer import Transformer

VOCABULARY = "vocab.numbers_ende.512.model"


def changed(name: str, **values: object) -> Callable[[Path], None]:
    """Returns a function that sets fields of the JSON file `name` in a folder to `values`."""

    def change(folder: Path) -> None:
        fields = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(fields | values))

    return change


def written(name: str, text: str) -> Callable[[Path], None]:
    """Returns a function that writes `text` to the file `name` in a folder."""

    def write(folder: Path) -> None:
        (folder / name).write_text(text)

    return write


def linked(name: str, target: str) -> Callable[[Path], None]:
    """Returns a function that replaces the file `name` in a folder by a link to `target`."""

    def link(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(target)

    return link


def fifo(name: str) -> Callable[[Path], None]:
    """Returns a function that replaces the file `name` in a folder by a FIFO without a writer."""

    def make(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return make


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (changed("problem.json", vocabulary="/dev/zero"), "vocabulary='/dev/zero' must be the name of a file in"),
        (changed("problem.json", vocabulary="../../etc/passwd"), "must be the name of a file in the same folder"),
        (changed("problem.json", vocabulary=".."), "must be the name of a file in the same folder"),
        (changed("problem.json", vocabulary="\x1b[2J"), r"vocabulary='\x1b[2J' must be the name of a file"),
        (changed("problem.json", problem="\x1b[2J" * 500), "which this program does not know"),
        (changed("problem.json", settings={"train_size": "many"}), "train_size='many' must be of type int"),
        (linked(VOCABULARY, "/dev/zero"), f"{VOCABULARY}: cannot be read (it is not a regular file)"),
        (linked("hparams.json", "/dev/zero"), "hparams.json: cannot be read (it is not a regular file)"),
        (fifo(VOCABULARY), f"{VOCABULARY}: cannot be read (it is not a regular file)"),
        (fifo("problem.json"), "problem.json: cannot be read (it is not a regular file)"),
        (written("hparams.json", " " * (2 << 20)), "hparams.json: the file has more than 1,048,576 bytes"),
        (lambda folder: os.truncate(folder / VOCABULARY, 1 << 40), "the file has more than 16,777,216 bytes"),
        (lambda folder: os.truncate(folder / VOCABULARY, 1 << 16), "not a SentencePiece model"),
        (written(VOCABULARY, "\n\0" * 1_000_001), "not a SentencePiece model"),
        (written("hparams.json", "[" * 1_000_000), "hparams.json: nested too deeply; restore the file"),
        (written("hparams.json", '{"num_heads": 1' + "0" * 9000 + "}"), "a number has 9,001 digits"),
        (written("hparams.json", '{"norm_epsilon": 1e400}'), "the number 1e400 is too large"),
        (written("hparams.json", '{"norm_epsilon": NaN}'), "hparams.json: NaN is not a number"),
        (written("hparams.json", '{"num_heads": 1, "num_heads": 2}'), "'num_heads' is given twice"),
        (written("hparams.json", r'{"model": "\ud800"}'), "half a surrogate pair"),
        (changed("hparams.json", num_hidden_layers=10**12), "num_hidden_layers=1000000000000 must be at most 1000"),
        (changed("hparams.json", num_heads=10**18 + 9, hidden_size=10**18 + 7), "must be at most 1048576"),
    ],
)
def test_a_hostile_folder_is_refused(folder: ModelFolder, harm: Callable[[Path], None], words: str) -> None:
    harm(folder.path)
    names = sorted(os.listdir(folder.path))
    message = error("decoder", f"--output_dir={folder.path}")
    assert words in message and message.isprintable() and len(message) < 1000
    assert sorted(os.listdir(folder.path)) == names


def test_hparams_that_need_more_memory_than_the_checkpoint_are_refused_before_the_model_is_made(
    folder: ModelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = weights_of(Transformer(folder.hparams, folder.vocabulary.size))
    checkpoint = write_checkpoint(folder.path, 3, weights, folder.vocabulary.fingerprint)
    folder.model(checkpoint)
    monkeypatch.setattr(Transformer, "__init__", lambda *_: pytest.fail("the model was made"))
    (folder.path / "hparams.json").write_text(to_json(replace(folder.hparams, hidden_size=1 << 20, num_heads=1)))
    with pytest.raises(UserError, match=r"weights, but the model of hparams\.json has [\d,]{13,}; put the right"):
        ModelFolder(folder.path).model(checkpoint)


def test_a_checkpoint_that_is_no_regular_file_or_has_other_numbers_is_refused(folder: ModelFolder) -> None:
    checkpoint = write_checkpoint(folder.path, 3, {"w": tf.Variable(1, dtype=tf.int32)}, folder.vocabulary.fingerprint)
    with pytest.raises(UserError, match="is not float32"):
        folder.model(checkpoint)
    (data,) = folder.path.glob("model.ckpt-3.data-*")
    data.unlink()
    os.mkfifo(data)
    with pytest.raises(UserError, match="it is not a regular file"):
        folder.model(checkpoint)


@pytest.mark.parametrize("name", ["/dev/zero", "../v", "vocab./../.model", "vocab.a\0.model", "hparams.json", "", ".."])
def test_a_data_directory_cannot_choose_which_file_is_read_or_overwritten(name: str) -> None:
    with pytest.raises(UserError, match=r"vocabulary='.* must be the name of a file in the same folder"):
        Description("p", {}, name, "f", "f", {"train": 1, "dev": 1}, {})
