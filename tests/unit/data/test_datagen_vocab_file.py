"""Tests data generation with a vocabulary that the user supplies as --vocab_file."""

import dataclasses
from pathlib import Path

import pytest

from folders import contents
from shards import pairs_of
from subwords import small_subwords
from t2t_repro import registry
from t2t_repro.data.datagen import generate_data
from t2t_repro.data.dataset import load_data
from t2t_repro.data.job import Options
from t2t_repro.data.records import Records, find_shards
from t2t_repro.data.vocabularies import sentencepiece
from t2t_repro.data.vocabularies.kinds import load_vocabulary
from t2t_repro.data.vocabularies.tensor2tensor import ByteVocabulary
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.models.model import make_model
from toys import ENGLISH, GREEK, Toy, failure, lines, text_files
from user_errors import user_error


@pytest.fixture
def user_file(tmp_path: Path) -> Path:
    """Writes a vocabulary file without Greek letters, learned from English text, and returns the
    file's path.
    """
    sentencepiece.train(lines(60), 300).save(tmp_path / "user" / "vocab.other.32000.model")
    return tmp_path / "user" / "vocab.other.32000.model"


@pytest.mark.parametrize("user_vocabulary", [None, small_subwords()], ids=["own", "subwords"])
def test_all_text_is_encoded_with_the_users_vocabulary(
    tmp_path: Path, user_file: Path, user_vocabulary: Vocabulary | None
) -> None:
    path = user_file
    if user_vocabulary:
        path = tmp_path / f"vocab.old{user_vocabulary.suffix}"
        user_vocabulary.save(path)
    vocabulary = user_vocabulary or load_vocabulary(user_file)
    toy = Toy()
    generated = generate_data(toy, tmp_path / "new", "", Options(vocab_file=path))
    assert (
        generated.vocabulary == f"vocab.toy.{vocabulary.size}{vocabulary.suffix}"
        and generated.vocabulary_given
    )
    assert (tmp_path / "new" / generated.vocabulary).read_bytes() == path.read_bytes()
    for split in ("train", "dev"):
        ids = pairs_of(Records(find_shards(tmp_path / "new", "toy", split)))
        texts = [(pair["inputs"], pair["targets"]) for pair in toy.pairs[split]]
        assert ids == [tuple(vocabulary.encode(pair)) for pair in texts]
    before = contents(tmp_path / "new")
    copy = tmp_path / "new" / generated.vocabulary  # may be supplied as well
    for overwrite in (False, True):
        generate_data(Toy(), tmp_path / "new", "", Options(1, copy, overwrite))
        assert contents(tmp_path / "new") == before


def test_sources_and_targets_can_have_different_vocabularies(
    tmp_path: Path, user_file: Path
) -> None:
    ByteVocabulary().save(tmp_path / "bytes.bytes")
    problem = text_files(tmp_path)
    options = Options(1, tmp_path / "bytes.bytes", source_vocab_file=user_file)
    description = generate_data(problem, tmp_path / "new", "", options)
    vocabularies = [load_vocabulary(user_file), ByteVocabulary()]
    texts = [(pair["inputs"], pair["targets"]) for pair in problem.generate("dev", "")]
    sides = [
        vocabulary.encode(side)
        for vocabulary, side in zip(vocabularies, zip(*texts, strict=True), strict=True)
    ]
    for name in ("text_files", "text_files_rev"):
        data = load_data(str(tmp_path / "new"), name)
        sources, targets = vocabularies
        assert (data.vocabulary.sources.kind, data.vocabulary.kind) == (sources.kind, targets.kind)
        assert data.vocabulary.separate_source_size == sources.size
        assert pairs_of(data.records["dev"]) == list(zip(*sides, strict=True))
        names = (data.description.source_vocabulary, data.description.vocabulary)
        models = [(tmp_path / "new" / file).read_bytes() for file in names]
        assert models == [sources.model, targets.model]
        vocabularies.reverse()
        sides.reverse()
    # Finished: nothing to do.
    assert generate_data(problem, tmp_path / "new", "", options) == description
    reversed_problem = registry.problem("text_files_rev", vars(problem.settings))
    swapped_options = Options(1, user_file, source_vocab_file=tmp_path / "bytes.bytes")
    assert generate_data(reversed_problem, tmp_path / "new", "", swapped_options) == description
    assert "holds data of problem text_files" in failure(problem, tmp_path / "new", user_file)


@pytest.mark.parametrize("size", [0, 320])
def test_separate_vocabularies_are_learned_from_each_side(
    tmp_path: Path, size: int, user_file: Path
) -> None:
    changes = {"separate_vocabularies": True, "vocab_size": size, "targets": "el"}
    problem = registry.problem("text_files", vars(text_files(tmp_path).settings) | changes)
    description = generate_data(problem, tmp_path / "new", "")
    data = load_data(str(tmp_path / "new"), "text_files")
    sides = (data.vocabulary.sources, data.vocabulary)
    letters = [
        {char for piece in side.pieces(range(side.size)) for char in piece} for side in sides
    ]
    assert "κ" in letters[1] - letters[0] and "g" in letters[0] - letters[1]
    assert [side.missing_symbols([">>el<<"]) for side in sides] == [[], [">>el<<"]]
    assert not size or {side.size for side in sides} == {size}
    sources, targets = zip(*pairs_of(data.records["train"]), strict=True)
    texts = zip(data.vocabulary.decode_sources(sources), sides[1].decode(targets), strict=True)
    pairs = [{"inputs": source, "targets": target} for source, target in texts]
    assert pairs == list(problem.generate("train", ""))
    before = contents(tmp_path / "new")
    assert (
        generate_data(problem, tmp_path / "new", "") == description
        and contents(tmp_path / "new") == before
    )
    # One vocabulary for both sides is other data, and a user's vocabulary leaves nothing to learn.
    assert "--overwrite" in failure(text_files(tmp_path), tmp_path / "new")
    problem = registry.problem("text_files", vars(problem.settings) | {"targets": ""})
    assert "--separate_vocabularies" in failure(problem, tmp_path / "x", user_file)
    with pytest.raises(UserError, match="shared_embedding_and_softmax_weights=false"):
        make_model(
            registry.hparams("transformer_tiny"), sides[1].size, source_vocab_size=sides[0].size
        )


def test_symbols_are_in_the_separate_vocabularies_that_need_them(tmp_path: Path) -> None:
    for of_sources in (True, False):
        toy = Toy()
        toy.settings = dataclasses.replace(toy.settings, separate_vocabularies=True)
        toy.symbols = ("▁(NP",)  # type: ignore[misc]
        toy.symbols_of_sources = of_sources  # type: ignore[misc]
        generate_data(toy, tmp_path, "", Options(overwrite=True))
        assert not load_vocabulary(tmp_path / "vocab.toy.400.model").missing_symbols(toy.symbols)
        sources = load_vocabulary(tmp_path / "vocab.toy.400.source.model")
        assert bool(sources.missing_symbols(toy.symbols)) != of_sources


def test_tags_are_looked_for_in_the_sources(tmp_path: Path, user_file: Path) -> None:
    problem = registry.problem(
        "text_files", vars(text_files(tmp_path).settings) | {"targets": "el"}
    )
    sentencepiece.train(lines(60), 310, [">>el<<"]).save(tags := tmp_path / "tags.model")
    options = Options(1, tags, source_vocab_file=user_file)
    assert ">>el<<" in user_error(generate_data, problem, tmp_path / "x", "", options)
    generate_data(problem, tmp_path / "x", "", Options(1, user_file, source_vocab_file=tags))


def test_another_vocabulary_replaces_data_only_with_overwrite(
    tmp_path: Path, user_file: Path
) -> None:
    size = load_vocabulary(user_file).size
    sentencepiece.train(lines(60, GREEK), size).save(tmp_path / "other.model")
    generate_data(Toy(), tmp_path / "again", "", Options(vocab_file=user_file))
    before = contents(tmp_path / "again")
    assert "with --overwrite" in failure(Toy(), tmp_path / "again", tmp_path / "other.model")
    message = failure(Toy(watch=lambda *place: pytest.fail("read")), tmp_path / "again")
    assert f"{tmp_path}/again: its vocabulary of toy came from --vocab_file" in message
    assert contents(tmp_path / "again") == before
    other = generate_data(
        Toy(), tmp_path / "again", "", Options(0, tmp_path / "other.model", overwrite=True)
    )
    assert (
        load_vocabulary(tmp_path / "again" / other.vocabulary).fingerprint
        == other.vocabulary_fingerprint
    )


def test_a_wrong_vocabulary_is_named_before_anything_is_written(
    tmp_path: Path, user_file: Path
) -> None:
    problem = Toy(watch=lambda *place: pytest.fail("read"))
    problem.symbols = ("▁(NP", "▁)NP", "▁red")  # type: ignore[misc]
    message = failure(problem, tmp_path / "new", user_file)
    assert (
        f"--vocab_file={user_file}: lacks 2 of the 3 symbols of problem toy, for example ▁(NP;"
        in message
    )
    user_file.write_bytes(user_file.read_bytes()[:2000])
    assert failure(problem, tmp_path / "new", user_file).startswith(f"{user_file}: ")
    path = tmp_path / "v.tokens"
    path.write_text("\n".join(["<pad>", "<EOS>", *ENGLISH, *GREEK[1:]]), "utf-8")
    message = failure(Toy(), tmp_path / "new", path)
    assert message.startswith(f"{path}: has no word {GREEK[0]!r}; change the")
    assert not (tmp_path / "new").exists()
