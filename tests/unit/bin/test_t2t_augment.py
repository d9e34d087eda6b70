"""t2t-augment translates text into a corpus that t2t-datagen reads, and refuses what does not fit
together.
"""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from folders import contents
from models import weights_of, word_model, write_checkpoint
from programs import refused, run, write_lines
from t2t_repro.checkpoints.model_folder import ModelFolder, Origin
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding import Translator
from t2t_repro.hparam import HParams
from toys import problem_of, train_pairs
from user_errors import user_error

pytestmark = pytest.mark.usefixtures("no_graphs")

TEXTS = ["the dog", "", "a cat", " the cat\tsat on the dog ", "the dog"]
SHORT = "extra_length=3"


@pytest.fixture(scope="module")
def original(
    tmp_path_factory: pytest.TempPathFactory, tiny_hparams: HParams, tiny_vocabulary: Vocabulary
) -> Path:
    """Returns a model folder with an untrained model from English to German."""
    hparams = dataclasses.replace(tiny_hparams, shared_embedding_and_softmax_weights=False)
    origin = Origin("numbers_ende", {}, "vocab.numbers_ende.512.model", "0123456789ab", 1)
    folder = ModelFolder.create(tmp_path_factory.mktemp("model"), hparams, tiny_vocabulary, origin)
    weights = weights_of(word_model(1, hparams, tiny_vocabulary))
    write_checkpoint(folder.path, 1, weights, tiny_vocabulary.fingerprint)
    return folder.path


@pytest.fixture
def model(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a folder the current one that has the model folder M and the text x."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(original, "M")
    write_lines(Path("x"), TEXTS)


def augment(*flags: str) -> Any:
    """Runs t2t-augment with short outputs and shards. Later flags replace earlier ones."""
    usual = [
        "--output_dir=M",
        "--text=x",
        "--corpus_dir=C",
        "--shard_lines=2",
        f"--decode_hparams={SHORT}",
    ]
    return run("augment", *usual, *flags)


def pairs_of(train: str, **settings: str) -> list[tuple[str, str]]:
    """Returns the pairs that t2t-datagen reads."""
    return train_pairs(problem_of(train, **settings))


@pytest.mark.usefixtures("model")
def test_the_corpus_has_the_translations_on_the_side_that_is_asked_for() -> None:
    translations = Translator.from_dir("M", extra_length=3).translate(TEXTS)
    outputs = [translation.text for translation in translations]
    texts = [text.replace("\t", " ").strip() for text in TEXTS]
    expected = [pair for pair in zip(outputs, texts, strict=True) if all(pair)]
    assert len(expected) == 4
    assert f"C is complete: {len(expected)} pairs of 5 lines" in augment("--train_tag=<bt>").stderr
    tagged = [(f"<bt> {output}", text) for output, text in expected]
    assert pairs_of("C", symbols="<bt>", languages="de,en") == tagged
    augment("--synthetic=target", "--corpus_dir=", f"--decode_hparams={SHORT},batch_size=1")
    swapped = [(text, output) for output, text in expected]
    assert pairs_of("x.augmented:2;C:1", symbols="<bt>") == [*swapped, *tagged]
    names = [corpus.name for corpus in problem_of("x.augmented;C/").corpora("train")]
    assert names == ["x.augmented", "C"]
    to_english = [(f">>en<< {source}", text) for source, text in tagged]
    assert pairs_of("C/", symbols="<bt>", targets="en", dev="b.de,b.en") == to_english


@pytest.mark.usefixtures("model")
def test_samples_differ_between_lines_and_depend_only_on_the_seed() -> None:
    write_lines(Path("x"), ["the dog"] * 8)

    def sample(folder: str, hparams: str) -> dict[str, bytes]:
        flags = [
            "--method=sampling",
            f"--corpus_dir={folder}",
            f"--decode_hparams={SHORT},{hparams}",
        ]
        assert augment(*flags).returncode == 0
        shards = contents(Path(folder))
        del shards["augment.json"]
        return shards

    first = sample("C", "sampling_seed=1")
    assert len({source for source, _ in pairs_of("C")}) > 4
    assert sample("E", "sampling_seed=1,batch_size=12") == first
    assert sample("F", "sampling_seed=2") != first


@pytest.mark.usefixtures("model")
def test_a_corpus_is_made_with_one_set_of_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert augment().returncode == 0
    before = contents(Path("C"))
    changes = [
        f"--decode_hparams={SHORT},beam_size=2",
        "--method=sampling",
        "--synthetic=target",
        "--train_tag=<bt>",
    ]
    for change in [*changes, "--shard_lines=3", "--long_lines=error", "--output_dir=M,M"]:
        refused(augment(change), "C: made with ", "--corpus_dir")
    write_lines(Path("x"), [*TEXTS, "a cat"])
    refused(augment(), "C: made with text=", "--corpus_dir")
    assert contents(Path("C")) == before
    shutil.move("M", "N")
    write_lines(Path("x.gz"), TEXTS)
    monkeypatch.delattr(ModelFolder, "decoding_model")  # nothing is left to translate
    flags = ["--output_dir=N", "--text=x.gz", f"--decode_hparams={SHORT},batch_size=7"]
    assert "4 pairs of 5 lines" in augment(*flags).stderr
    assert contents(Path("C")) == before


@pytest.mark.usefixtures("model")
def test_text_of_another_problem_and_unfinished_text_are_refused_by_datagen() -> None:
    augment("--train_tag=<bt>")
    for settings, words in (
        ({"languages": "en,de"}, ("C", "in de", "--languages=en,de")),
        ({"languages": "de,fr"}, ("C", "in en", "--languages=de,fr")),
        ({"targets": "fr", "dev": "b.en,b.fr"}, ("C", "'en'", "--targets")),
        ({"symbols": "<kd>"}, ("C", '--symbols="<bt>"')),
    ):
        message = user_error(pairs_of, "C", **{"symbols": "<bt>"} | settings)
        assert all(word in message for word in words), message
    for symbols in ("<bt>,<bt>", "<bt>,", "a b", ">>de<<", "</s>"):
        assert f"--symbols={symbols}" in user_error(pairs_of, "C", symbols=symbols)
    Path("C/00001.tsv.gz").unlink()
    assert "C/00001.tsv.gz" in user_error(pairs_of, "C", symbols="<bt>")
    results = json.loads(Path("C/augment.json").read_text())
    Path("C/augment.json").write_text(json.dumps(results | {"finished_shards": 1}))
    assert "C: shards are missing" in user_error(pairs_of, "C", symbols="<bt>")
    assert "M: no augment.json" in user_error(pairs_of, "M")


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--text=y"], ("y: no such file",)),
        (["--text=empty"], ("--text=empty", "empty")),
        (["--text=latin"], ("latin:2", "not UTF-8")),
        (["--text=/dev/null"], ("--text=/dev/null", "not a regular file")),
        (["--corpus_dir=M"], ("M: no augment.json",)),
        (["--train_tag=<bt> x"], ("--train_tag=<bt> x",)),
        (["--train_tag=>>de<<"], ("--train_tag=>>de<<", "--targets")),
        (["--target_language=fr"], ("--target_language=fr",)),
        (["--decode_hparams=sampling_method=random"], ("sampling_method is given twice",)),
        (["--decode_hparams=write_beam_scores=true"], ("write_beam_scores",)),
        (["--decode_hparams=well_formed=true"], ("well_formed",)),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_written(
    flags: list[str], words: tuple[str, ...]
) -> None:
    Path("empty").touch()
    Path("latin").write_bytes(b"one\nz\xfcei\n")
    before = contents(Path())
    refused(augment(*flags), *words)
    assert contents(Path()) == before and not Path("C").exists()
