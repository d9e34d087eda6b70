"""Tests that each damaged or hostile file is read, or refused in one line, and that no reader hangs
or fills memory.
"""

import gzip
import json
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import tensorflow as tf

from checkpoints import Training
from damage import Damaged, damaged_bytes, damaged_json, damaged_json_lines
from folders import contents
from models import weights_of, write_checkpoint
from sentencepieces import trained
from subwords import small_subwords
from t2t_repro import registry
from t2t_repro.checkpoints.averaging import average_checkpoints
from t2t_repro.checkpoints.checkpoint_files import keep_only
from t2t_repro.checkpoints.model_folder import ModelFolder, Origin
from t2t_repro.checkpoints.reader import read_checkpoint
from t2t_repro.corpora.augmented import Augmentation
from t2t_repro.corpora.parallel import read_rows
from t2t_repro.data import summary
from t2t_repro.data.datagen import generate_data
from t2t_repro.data.dataset import load_data
from t2t_repro.data.job import Options
from t2t_repro.data.vocabularies.graph import graph_vocabulary
from t2t_repro.data.vocabularies.kinds import load_vocabulary
from t2t_repro.data.vocabularies.marian import marian_file
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding.journal import Journal
from t2t_repro.decoding.output import json_line
from t2t_repro.decoding.translation import Hypothesis, Translation
from t2t_repro.errors import UserError
from t2t_repro.files.json_file import to_json
from t2t_repro.files.textfile import read_lines
from t2t_repro.files.untrusted import parse_json, read_text
from t2t_repro.hparam import HParams
from t2t_repro.huggingface.config import read_config
from t2t_repro.models import variants
from t2t_repro.opennmt_tf.description import read_description
from t2t_repro.paper.results import Results, read_results, training_results, write_results
from t2t_repro.parsing.evalb_parameters import read_parameters
from t2t_repro.parsing.trees import read_trees
from t2t_repro.serving.server_files import write_configs
from t2t_repro.serving.versions import new_version
from t2t_repro.training.logs import Logs
from t2t_repro.training.metrics_log import MetricsLog
from tokenizers_json import tokenizer_json
from toys import text_files
from user_errors import user_error

VOCABULARY = "vocab.numbers_ende.512.model"
OUTPUT = "x.de-00001-of-00002"
SHARD = "text_files-train-00000-of-00001"
DONE = Translation(
    (Hypothesis("ein", -0.5, (7, 1), (-0.1, -0.4), (0, 1)), Hypothesis("", -1e-9)),
    (8, 1),
    segments=2,
)
MEMORY = 1 << 30
"""Bytes that a reader may allocate."""
cases = hypothesis.settings(
    max_examples=25,
    derandomize=True,
    database=None,
    deadline=timedelta(seconds=10),
    phases=[hypothesis.Phase.generate],
    suppress_health_check=list(hypothesis.HealthCheck),
)


def read_model(folder: Path) -> None:
    """Opens the model folder, and encodes and decodes a line with its vocabulary."""
    use(ModelFolder(folder).vocabulary)


def use(vocabulary: Vocabulary) -> None:
    vocabulary.pieces(range(vocabulary.size))
    assert len(vocabulary.decode(vocabulary.encode(["the dog \u00fc\u6f22"]))) == 1


def serve(vocabulary: Vocabulary) -> None:
    """Encodes and decodes in a graph, with an older version of SentencePiece."""
    graph = graph_vocabulary(vocabulary)
    graph.detokenize(graph.tokenize(["the dog \u00fc\u6f22 \ufb01 \U0001f100 x\u0323\u0301"]))


def read_data(folder: Path) -> None:
    """Reads all records of the folder's data."""
    data = load_data(str(folder), "text_files")
    for stored in data.records.values():
        for number in range(len(stored)):
            assert all(
                ids.min() >= 0 and ids.max() < data.vocabulary.size
                for ids in stored[number]
                if len(ids)
            )


def read_journal(folder: Path) -> None:
    """Reads the journal of an interrupted decode, and formats its translations as
    --output_format=jsonl does.
    """
    with Journal(folder / OUTPUT, "settings", resume=True) as journal:
        for translation in journal.done.values():
            json_line(
                "source", translation, load_vocabulary(folder / VOCABULARY), has_attention=True
            )


def read_weights(folder: Path) -> None:
    assert read_checkpoint(ModelFolder(folder).checkpoint()).weights


def corpora(path: str) -> None:
    problem = registry.problem("text_files", {"train": path, "dev": "b.de.tsv", "targets": "de"})
    problem.check()
    problem.corpora("train")


@dataclass(frozen=True)
class Kind:
    """A kind of file, and how it is damaged and read."""

    name: str
    """Name of the file in the folder."""
    read: Callable[[Path], object]
    """Reads the folder as the programs do."""
    damage: Callable[[bytes], Damaged] = damaged_bytes
    contents: bytes = b""
    """Contents of the file; empty if the fixture `folder` has the file."""
    is_checked: bool = True
    """False if most damage cannot be noticed, e.g. in text, or does no harm."""
    is_limited: bool = True
    """True if only a regular file of limited size is read."""


def lines_of(read: Callable[[str], object], name: str) -> Callable[[Path], object]:
    return lambda folder: list(read(str(folder / name)))  # type: ignore[call-overload]


TEXT = "".join(
    f'<seg id="{number}"> Größe &amp; \u2028 {number} </seg>\r\n' for number in range(9)
).encode()
TREES = b"(S (NP (DT the) (NN dog)) (VP (VBZ -LRB-)))\n(TOP (X\n (Y y)))\n" * 3
KINDS = (
    Kind("hparams.json", read_model, damaged_json),
    Kind("problem.json", read_model, damaged_json),
    Kind(VOCABULARY, read_model),
    Kind(
        "vocab.subwords",
        lambda folder: use(load_vocabulary(folder / "vocab.subwords")),
        is_checked=False,
    ),
    Kind(
        "vocab.model",
        lambda folder: serve(load_vocabulary(folder / "vocab.model")),
        contents=trained(),
    ),
    Kind(
        "vocab.tokens",
        lambda folder: use(load_vocabulary(folder / "vocab.tokens")),
        is_checked=False,
        contents=b"<pad>\n<EOS>\nthe\nUNK\ndog\n",
    ),
    Kind(
        "vocab.bpe",
        lambda folder: use(load_vocabulary(folder / "vocab.bpe")),
        is_checked=False,
        contents="#version: 0.2\nt h\nth e</w>\nd o\ndo g</w>\nä ö\n".encode(),
    ),
    Kind(
        "vocab.tokenizer",
        lambda folder: use(load_vocabulary(folder / "vocab.tokenizer")),
        damaged_json,
        is_checked=False,
        contents=tokenizer_json(),
    ),
    Kind(
        "vocab.marian",
        lambda folder: serve(load_vocabulary(folder / "vocab.marian")),
        damaged_json,
        is_checked=False,
        contents=marian_file(["<pad>", "</s>", "<unk>", "d"], trained(), trained()),
    ),
    Kind(
        "config.json",
        read_config,
        damaged_json,
        is_checked=False,
        contents=b'{"model_type": "marian", "d_model": 32, "eos_token_id": 0, '
        b'"bad_words_ids": [[58100]]}',
    ),
    Kind(
        "model_description.py",
        lambda folder: read_description(folder / "model_description.py"),
        is_checked=False,
        contents=b"import opennmt as onmt\n"
        b"model = lambda: onmt.models.Transformer(None, num_heads=2, dropout=.1)\n",
    ),
    Kind("text_files.json", read_data, damaged_json),
    Kind(
        "datagen.json",
        lambda folder: summary.save(folder / "text", "x", {}, folder),
        damaged_json,
        is_checked=False,
    ),
    Kind(SHARD, read_data, is_limited=False),
    # The index is made again if it does not match the shard.
    Kind(f"{SHARD}.index", read_data, is_checked=False),
    Kind(f"{OUTPUT}.unfinished", read_journal, is_limited=False),
    Kind(
        "corpora.json",
        lambda folder: corpora(str(folder / "corpora.json")),
        damaged_json,
        is_checked=False,
        contents=b'{"a": {"files": ["a", "b"], "weight": 1, "target_language": "de"}, '
        b'"c": {"files": ["c.de.tsv"], "weight": 2.5}}',
    ),
    Kind(
        "augment.json",
        lambda folder: corpora(str(folder)),
        damaged_json,
        contents=to_json(Augmentation({"n": "1"}, "en", "de", "", 2, 2, 9)).encode(),
    ),
    Kind(
        "x.jsonl",
        lines_of(lambda path: read_rows(path, ("en", "de")), "x.jsonl"),
        damaged_json_lines,
        contents=b'{"inputs": "a", "targets": "b"}\n{"translation": {"en": "c", "de": "d"}}\n',
        is_limited=False,
    ),
    Kind("metrics.jsonl", training_results, damaged_json_lines, is_checked=False),
    Kind("results.json", read_results, damaged_json),
    Kind("checkpoint", read_weights, is_checked=False),
    Kind("model.ckpt-5.index", read_weights, is_limited=False),
    Kind("model.ckpt-5.data-00000-of-00001", read_weights, is_limited=False),
    Kind(
        "t2t.json",
        lambda folder: parse_json(read_text(folder / "t2t.json"), "t2t.json"),
        damaged_json,
        is_checked=False,
        contents=b'{"hidden_size": 512, "attention_dropout": 0.1, "bottom": {"targets": null}}',
    ),
    Kind(
        "x.prm",
        lambda folder: read_parameters(str(folder / "x.prm")),
        is_limited=False,
        is_checked=False,
        contents=b"##\nDEBUG 0\nMAX_ERROR 10\nCUTOFF_LEN 40\nDELETE_LABEL TOP\n"
        b"EQ_LABEL ADVP PRT\nEQ_WORD a b\n",
    ),
    Kind("x.trees", lines_of(read_trees, "x.trees"), contents=TREES, is_limited=False),
    Kind(
        "x.trees.gz",
        lines_of(read_trees, "x.trees.gz"),
        contents=gzip.compress(TREES, mtime=0),
        is_limited=False,
    ),
    Kind("x.sgm", lines_of(read_lines, "x.sgm"), contents=TEXT, is_checked=False, is_limited=False),
    Kind(
        "x.txt",
        lines_of(read_lines, "x.txt"),
        contents=TEXT[5:],
        is_checked=False,
        is_limited=False,
    ),
)


@pytest.fixture(scope="module")
def folder(
    tmp_path_factory: pytest.TempPathFactory, tiny_hparams: HParams, tiny_vocabulary: Vocabulary
) -> Path:
    """A folder that is a model folder and a data directory, with a journal and other files of all
    `KINDS`.
    """
    folder: Path = tmp_path_factory.mktemp("damaged")
    ModelFolder.create(
        folder,
        tiny_hparams,
        tiny_vocabulary,
        Origin("numbers_ende", {}, VOCABULARY, "0123456789ab", 1),
    )
    (folder / "text").mkdir()
    generate_data(text_files(folder / "text"), folder, "")
    small_subwords().save(folder / "vocab.subwords")
    with Journal(folder / OUTPUT, "settings", resume=False) as journal:
        for number in range(3):
            journal.add(number, DONE)
    log = MetricsLog(folder, 0)
    log.add(5, seconds=1.5, train_loss=2.0, hardware="A", gpu_count=2)
    log.add(5, dev_loss=1.0, dev_perplexity=2.5)
    write_results(folder, Results(steps=5, bleu={"wmt14": 27.3}, signatures=["wmt14: x"]))
    weights = {
        "a/b": tf.Variable(np.ones((64, 4), np.float32)),
        "c": tf.Variable(np.ones(16, np.float32)),
    }
    write_checkpoint(folder, 5, weights, tiny_vocabulary.fingerprint)
    keep_only(folder, [str(folder / "model.ckpt-5")])
    for kind in KINDS:
        if kind.contents:
            (folder / kind.name).write_bytes(kind.contents)
    return folder


@pytest.fixture(autouse=True)
def limited_memory() -> Iterator[None]:
    """Makes allocations fail that would make the process larger by more than `MEMORY`."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def status(folder: Path) -> dict[str, tuple[int, int]]:
    """Returns size and time of the last change of each file in a folder, by name."""
    return {
        entry.name: (entry.stat().st_size, entry.stat().st_mtime_ns) for entry in os.scandir(folder)
    }


def is_refused(kind: Kind, folder: Path, original: dict[str, bytes]) -> bool:
    """Returns True if reading the folder raises a UserError of one line. Restores the folder's
    files.

    Asserts that a refused folder is not changed, except for an index that is made again.
    """
    before = status(folder)
    is_refused = False
    try:
        kind.read(folder)
    except UserError as error:
        assert "\n" not in str(error) and len(str(error)) < 5000
        is_refused = True
    changed = {name for name, _ in before.items() ^ status(folder).items()}
    assert not is_refused or {name for name in changed if not name.endswith(".index")} == set()
    (folder / kind.name).unlink()
    for name in {kind.name, *changed} & original.keys():
        (folder / name).write_bytes(original[name])
    return is_refused


# NumPy warns at some damaged headers.
@pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_damaged_file_is_read_or_refused_in_one_line(kind: Kind, folder: Path) -> None:
    original = contents(folder)
    refusals = []
    assert not is_refused(kind, folder, original)

    @cases
    @hypothesis.given(kind.damage(original[kind.name]))
    def check(damaged: bytes) -> None:
        (folder / kind.name).write_bytes(damaged)
        refusals.append(is_refused(kind, folder, original))

    check()
    if kind.is_checked:
        assert sum(refusals) >= len(refusals) // 4


def make_huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind.is_limited], ids=lambda kind: kind.name
)
def test_only_a_regular_file_of_limited_size_is_read(kind: Kind, folder: Path) -> None:
    original = contents(folder)
    path = folder / kind.name
    for harm in (make_huge, os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        path.unlink()
        harm(path)
        is_refused(kind, folder, original)


def test_links_in_a_received_folder_lead_no_program_to_other_files(
    folder: Path, tmp_path: Path
) -> None:
    received = tmp_path / "received"
    others = tmp_path / "others"
    shutil.copytree(folder, received)
    others.mkdir()
    for path in [path for path in received.iterdir() if path.is_file()]:
        path.replace(others / path.name)
        path.symlink_to(others / path.name)
    (received / "models.config").symlink_to(others / "new")
    before = status(others)

    def save(number: int) -> None:
        Training(ModelFolder(received)).saved(number).checkpoints.save_best(number)

    writers: dict[str, Callable[[], object]] = {
        ".lock": lambda: ModelFolder.locked(received).__enter__(),
        "best": lambda: save(6),
        "averaged": lambda: average_checkpoints(ModelFolder(received), 1),
        "tensorboard": lambda: Logs(received, 5, 1).tensorboard.scalars(5, {"dev_loss": 1.0}),
        ".datagen.lock": lambda: generate_data(
            text_files(folder / "text"), received, "", Options(overwrite=True)
        ),
        ".unfinished": lambda: new_version(received).__enter__(),
    }
    for name, write in writers.items():
        (received / name).symlink_to(others if name in ("best", "averaged") else others / name)
        assert f"{received / name} is " in user_error(write)
        (received / name).unlink()
        write()
    ModelFolder(received).save()
    write_results(received, Results(steps=5))
    write_configs(received, "x")
    assert status(others) == before


def test_a_file_may_have_exactly_the_maximum_size(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"four")
    assert read_text(tmp_path / "x", 4) == "four"
    assert "more than 3 bytes; restore the file" in user_error(read_text, tmp_path / "x", 3)


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        (
            "problem.json",
            {"vocabulary": "../../etc/passwd"},
            "must be the name of a file in the same folder",
        ),
        ("hparams.json", {"num_heads": 10**18 + 9, "hidden_size": 10**18 + 7}, ".. 1048576"),
    ],
)
def test_a_hostile_description_is_refused(
    name: str, fields: dict[str, object], words: str, folder: Path
) -> None:
    whole = (folder / name).read_text()
    (folder / name).write_text(json.dumps(json.loads(whole) | fields))
    message = user_error(ModelFolder, folder)
    (folder / name).write_text(whole)
    assert message.startswith(f"{folder / name}: ") and words in message


def test_hparams_that_need_more_memory_than_the_checkpoint_are_refused_before_the_model_is_made(
    tmp_path: Path, tiny_hparams: HParams, tiny_vocabulary: Vocabulary
) -> None:
    origin = Origin("numbers_ende", {}, VOCABULARY, "0123456789ab", 1)
    model = ModelFolder.create(tmp_path, tiny_hparams, tiny_vocabulary, origin)
    weights = weights_of(variants.transformer(tiny_hparams, tiny_vocabulary.size))
    checkpoint = write_checkpoint(tmp_path, 3, weights, tiny_vocabulary.fingerprint)
    model.model(checkpoint)
    (tmp_path / "hparams.json").write_text(
        to_json(replace(tiny_hparams, hidden_size=1 << 20, num_heads=1))
    )
    assert "of the same training" in user_error(ModelFolder(tmp_path).model, checkpoint)
