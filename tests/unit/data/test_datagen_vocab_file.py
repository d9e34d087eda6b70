"""Tests data generation with a vocabulary that the user supplies as --vocab_file."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from folders import contents
from subwords import small_subwords
from t2t_repro import registry
from t2t_repro.data.datagen import generate_data
from t2t_repro.data.dataset import load_data
from t2t_repro.data.description import Description, load_problem
from t2t_repro.data.job import Options
from t2t_repro.data.records import Records, find_shards
from t2t_repro.data.vocabularies import sentencepiece
from t2t_repro.data.vocabularies.kinds import load_vocabulary
from t2t_repro.data.vocabularies.tensor2tensor import ByteVocabulary
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.problem import Problem
from toys import GREEK, Toy, failure, lines, raise_at, text_files


@pytest.fixture
def user_file(tmp_path: Path) -> Path:
    """Writes a vocabulary file without Greek letters, learned from English text, and returns the file's path."""
    sentencepiece.train(lines(60), 300).save(tmp_path / "user" / "vocab.other.32000.model")
    return tmp_path / "user" / "vocab.other.32000.model"


@pytest.fixture
def unlearnable(user_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes generate_data fail if it learns a vocabulary, or samples text to learn one."""
    monkeypatch.setattr(sentencepiece, "train", None)
    monkeypatch.setattr(sentencepiece, "sample", None)


def interrupt(folder: Path, vocab_file: Path | str, *place: object) -> None:
    """Generates data for Toy, and interrupts it before it reads a certain pair.

    Args:
        place: split, pass and number of that pair.
    """
    with pytest.raises(KeyboardInterrupt):
        generate_data(Toy(watch=raise_at(KeyboardInterrupt(), *place)), folder, "", Options(vocab_file=vocab_file))


@pytest.mark.usefixtures("unlearnable")
def test_all_text_is_encoded_with_the_users_vocabulary(tmp_path: Path, user_file: Path) -> None:
    problem = Toy()
    generate_data(problem, tmp_path / "new", "", Options(vocab_file=user_file))
    vocab = load_vocabulary(user_file)
    for split in ("train", "dev"):
        read = Records(find_shards(tmp_path / "new", "toy", split))
        ids = [[side.tolist() for side in read[number]] for number in range(len(read))]
        assert ids == [vocab.encode([pair["inputs"], pair["targets"]]) for pair in problem.pairs[split]]


@pytest.mark.usefixtures("unlearnable")
def test_the_description_names_the_users_vocabulary(tmp_path: Path, user_file: Path) -> None:
    numbers = registry.problem("numbers_ende", {"train_size": 30})
    generated = generate_data(numbers, tmp_path / "new", "", Options(vocab_file=user_file))
    problem, vocab, description = load_problem(tmp_path / "new", "numbers_ende")
    assert vocab.model == user_file.read_bytes()
    assert generated == description
    assert description.vocabulary_given
    assert description.vocabulary == f"vocab.numbers_ende.{vocab.size}.model"
    assert description.vocabulary_fingerprint == vocab.fingerprint
    assert problem.settings == dataclasses.replace(numbers.settings, vocab_size=vocab.size)


@pytest.mark.usefixtures("unlearnable")
@pytest.mark.parametrize("processes", [1, 2])
def test_sources_and_targets_can_have_different_vocabularies(tmp_path: Path, user_file: Path, processes: int) -> None:
    ByteVocabulary().save(tmp_path / "bytes.bytes")
    problem = text_files(tmp_path)
    options = Options(processes, tmp_path / "bytes.bytes", source_vocab_file=user_file)
    description = generate_data(problem, tmp_path / "new", "", options)
    sources, targets = load_vocabulary(user_file), ByteVocabulary()
    texts = [[pair[side] for pair in problem.generate("dev", "")] for side in ("inputs", "targets")]
    expected = [sources.encode(texts[0]), targets.encode(texts[1])]
    for name, swapped in (("text_files", False), ("text_files_rev", True)):
        data = load_data(str(tmp_path / "new"), name)
        order = -1 if swapped else 1
        assert [data.vocabulary.sources.kind, data.vocabulary.kind] == [sources.kind, targets.kind][::order]
        assert data.vocabulary.separate_source_size == [sources.size, targets.size][::order][0]
        numbers = [data.records["dev"][number] for number in range(len(data.records["dev"]))]
        assert [[side.tolist() for side in column] for column in zip(*numbers, strict=True)] == expected[::order]
        names = [data.description.source_vocabulary, data.description.vocabulary]
        assert [(tmp_path / "new" / file).read_bytes() for file in names] == [sources.model, targets.model][::order]
    assert generate_data(problem, tmp_path / "new", "", options) == description  # finished: nothing to do
    reversed_problem = registry.problem("text_files_rev", vars(problem.settings))
    swapped_options = Options(processes, user_file, source_vocab_file=tmp_path / "bytes.bytes")
    assert generate_data(reversed_problem, tmp_path / "new", "", swapped_options) == description
    with pytest.raises(UserError, match="holds data of problem text_files"):
        generate_data(problem, tmp_path / "new", "", Options(vocab_file=user_file))


def test_the_vocabulary_of_the_other_side_is_not_overwritten(tmp_path: Path, user_file: Path) -> None:
    sentencepiece.train(lines(60, GREEK), 300).save(tmp_path / "targets.model")
    (source_size, target_size) = (load_vocabulary(path).size for path in (user_file, tmp_path / "targets.model"))
    (tmp_path / "new").mkdir()
    cases = (
        (f"vocab.toy.{target_size}.model", user_file, "the vocabulary of the sources"),
        (f"vocab.toy.{source_size}.source.model", tmp_path / "targets.model", "the vocabulary of the targets"),
    )
    for name, original, side in cases:
        path = tmp_path / "new" / name
        path.write_bytes(original.read_bytes())
        files = {user_file: user_file, tmp_path / "targets.model": tmp_path / "targets.model"} | {original: path}
        options = Options(1, files[tmp_path / "targets.model"], source_vocab_file=files[user_file])
        with pytest.raises(UserError, match=f"{re.escape(name)} is also an input .{side}. and would be overwritten"):
            generate_data(Toy(), tmp_path / "new", "", options)
        path.unlink()


def test_a_supplied_and_a_learned_vocabulary_of_equal_bytes_give_the_same_records(tmp_path: Path) -> None:
    problem = Toy()
    problem.settings = Problem.Settings(300)
    learned = generate_data(problem, tmp_path / "learned", "")
    path = tmp_path / "learned" / learned.vocabulary
    supplied = generate_data(Toy(), tmp_path / "supplied", "", Options(vocab_file=path))
    assert not learned.vocabulary_given
    assert supplied.source_fingerprint != learned.source_fingerprint
    shown = {"vocabulary_given": True, "source_fingerprint": supplied.source_fingerprint}
    assert supplied == dataclasses.replace(learned, **shown)
    folders = [contents(tmp_path / name) | {"toy.json": b""} for name in ("learned", "supplied")]
    assert folders[0] == folders[1]


def test_a_supplied_vocabulary_replaces_a_learned_one(tmp_path: Path, user_file: Path) -> None:
    generate_data(Toy(), tmp_path / "fresh", "", Options(vocab_file=user_file))
    generate_data(Toy(), tmp_path / "again", "")
    generate_data(Toy(), tmp_path / "again", "", Options(0, user_file, overwrite=True))
    again = contents(tmp_path / "again")
    # The learned vocabulary is not overwritten: it has another size, which is part of the file name.
    again.pop("vocab.toy.400.model")
    assert again == contents(tmp_path / "fresh")


@pytest.mark.usefixtures("unlearnable")
@pytest.mark.parametrize(("split", "number"), [("train", 0), ("train", 20), ("dev", 9)])
def test_an_interrupted_run_resumes_with_the_users_vocabulary(
    tmp_path: Path, user_file: Path, split: str, number: int
) -> None:
    generate_data(Toy(), tmp_path / "unbroken", "", Options(vocab_file=user_file))
    interrupt(tmp_path / "broken", user_file, split, 2, number)
    [vocabulary_copy] = (tmp_path / "broken").glob("vocab.*")
    finished = [vocabulary_copy, *(tmp_path / "broken").glob("toy-*-of-00003")]
    times = {path: path.stat().st_mtime_ns for path in finished}
    generate_data(Toy(), tmp_path / "broken", "", Options(vocab_file=user_file))
    assert contents(tmp_path / "broken") == contents(tmp_path / "unbroken")
    assert {path: path.stat().st_mtime_ns for path in finished} == times


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_another_vocabulary_of_the_same_size_starts_over(tmp_path: Path, user_file: Path, is_interrupted: bool) -> None:
    size = load_vocabulary(user_file).size
    other = sentencepiece.train(lines(60, GREEK), size)
    other.save(tmp_path / "other.model")
    assert other.size == size
    generate_data(Toy(), tmp_path / "fresh", "", Options(vocab_file=tmp_path / "other.model"))
    if is_interrupted:
        interrupt(tmp_path / "again", user_file, "dev", 2, 5)
    else:
        generate_data(Toy(), tmp_path / "again", "", Options(vocab_file=user_file))
    assert "with --overwrite" in failure(Toy(), tmp_path / "again", tmp_path / "other.model")
    generate_data(Toy(), tmp_path / "again", "", Options(0, tmp_path / "other.model", overwrite=True))
    assert contents(tmp_path / "again") == contents(tmp_path / "fresh")


def test_a_run_that_learned_its_vocabulary_does_not_resume_with_a_supplied_one(tmp_path: Path, user_file: Path) -> None:
    problem = Toy(watch=raise_at(KeyboardInterrupt(), "dev", 2, 5))
    problem.settings = Problem.Settings(load_vocabulary(user_file).size)
    generate_data(Toy(), tmp_path / "fresh", "", Options(vocab_file=user_file))
    with pytest.raises(KeyboardInterrupt):
        generate_data(problem, tmp_path / "again", "")
    assert "(shards: 3) that this run cannot resume" in failure(Toy(), tmp_path / "again", user_file)
    generate_data(Toy(), tmp_path / "again", "", Options(0, user_file, overwrite=True))
    assert contents(tmp_path / "again") == contents(tmp_path / "fresh")


@pytest.mark.usefixtures("unlearnable")
@pytest.mark.parametrize("is_interrupted", [False, True])
def test_a_supplied_vocabulary_is_not_replaced_by_a_learned_one(
    tmp_path: Path, user_file: Path, is_interrupted: bool
) -> None:
    if is_interrupted:
        interrupt(tmp_path / "new", user_file, "train", 2, 20)
    else:
        generate_data(Toy(), tmp_path / "new", "", Options(vocab_file=user_file))
    before = contents(tmp_path / "new")
    message = failure(Toy(watch=lambda *place: pytest.fail("read")), tmp_path / "new")
    assert f"{tmp_path}/new: its vocabulary of toy came from --vocab_file" in message
    assert contents(tmp_path / "new") == before


@pytest.mark.usefixtures("unlearnable")
def test_the_vocabulary_of_the_data_directory_itself_may_be_supplied(tmp_path: Path, user_file: Path) -> None:
    generated = generate_data(Toy(), tmp_path / "new", "", Options(vocab_file=user_file))
    before = contents(tmp_path / "new")
    vocabulary_copy = tmp_path / "new" / generated.vocabulary
    generate_data(Toy(), tmp_path / "new", "", Options(vocab_file=vocabulary_copy))
    assert contents(tmp_path / "new") == before

    def changed() -> Toy:
        """Returns a problem whose text changes in the second pass. So generate_data fails and deletes the data."""
        problem = Toy()

        def watch(*place: object) -> None:
            if place == ("train", 2, 0):
                problem.pairs["train"][7]["inputs"] = "tree"

        problem.watch = watch
        return problem

    # The test deletes datagen.json, because a failed run keeps it: it may hold the summaries of other problems, too.
    (tmp_path / "new" / "datagen.json").unlink()
    (tmp_path / "link").symlink_to(vocabulary_copy)
    for path in (vocabulary_copy, tmp_path / "link"):
        failure(changed(), tmp_path / "new", path, overwrite=True)
        assert contents(tmp_path / "new") == {vocabulary_copy.name: user_file.read_bytes()}
    failure(changed(), tmp_path / "new", user_file)
    assert contents(tmp_path / "new") == {}
    assert user_file.is_file()


@pytest.mark.parametrize("damage", ["missing", "empty", "truncated", "a folder", "text"])
def test_a_damaged_vocabulary_is_named_before_text_is_read(tmp_path: Path, user_file: Path, damage: str) -> None:
    generate_data(Toy(), tmp_path / "new", "")
    before, model = contents(tmp_path / "new"), user_file.read_bytes()
    user_file.unlink()
    if damage == "a folder":
        user_file.mkdir()
    elif damage != "missing":
        user_file.write_bytes({"empty": b"", "truncated": model[: len(model) // 2], "text": b"the\nof\n"}[damage])
    message = failure(Toy(watch=lambda *place: pytest.fail("read")), tmp_path / "new", user_file)
    assert message.startswith(f"{user_file}: ")
    assert contents(tmp_path / "new") == before


def test_a_vocabulary_without_the_problems_symbols_is_refused(tmp_path: Path, user_file: Path) -> None:
    problem = Toy()
    problem.symbols = ("▁(NP", "▁)NP", "▁red")  # type: ignore[misc]
    message = failure(problem, tmp_path / "new", user_file)
    assert f"--vocab_file={user_file}: lacks 2 of the 3 symbols of problem toy, for example ▁(NP;" in message
    assert not (tmp_path / "new").exists()
    sentencepiece.train(lines(60, GREEK), 320, problem.symbols).save(user_file)
    generate_data(problem, tmp_path / "new", "", Options(vocab_file=user_file))


def test_mistakes_in_the_text_are_found_before_anything_is_written(tmp_path: Path, user_file: Path) -> None:
    generate_data(Toy(), tmp_path / "new", "")
    before = contents(tmp_path / "new")
    problem = Toy(watch=raise_at(UserError("line 50 is damaged"), "train", 1, 49))
    assert failure(problem, tmp_path / "new", user_file, overwrite=True) == "line 50 is damaged"
    assert contents(tmp_path / "new") == before


def test_a_description_without_the_field_vocabulary_given_means_a_learned_one(tmp_path: Path) -> None:
    generate_data(Toy(), tmp_path, "")
    path = tmp_path / "toy.json"
    fields = json.loads(path.read_text("utf-8"))
    assert fields.pop("vocabulary_given") is False
    path.write_text(json.dumps(fields), "utf-8")
    problem = Toy()
    assert not Description.load(path).vocabulary_given
    generate_data(problem, tmp_path, "")


@pytest.mark.parametrize("user_vocabulary", [small_subwords(), ByteVocabulary()], ids=["subwords", "bytes"])
def test_all_text_is_encoded_with_a_vocabulary_of_tensor2tensor(tmp_path: Path, user_vocabulary: Vocabulary) -> None:
    path = tmp_path / f"vocab.old{user_vocabulary.suffix}"
    user_vocabulary.save(path)
    toy = Toy()
    generated = generate_data(
        toy,
        tmp_path / "new",
        "",
        Options(num_concurrent_processes=1 + (user_vocabulary.kind == "subwords"), vocab_file=path),
    )
    assert generated.vocabulary == f"vocab.toy.{user_vocabulary.size}{user_vocabulary.suffix}"
    read = Records(find_shards(tmp_path / "new", "toy", "dev"))
    pairs = zip((read[number] for number in range(len(read))), toy.pairs["dev"], strict=True)
    for sides, pair in pairs:
        assert [side.tolist() for side in sides] == user_vocabulary.encode([pair["inputs"], pair["targets"]])
    (tmp_path / "new" / f".vocab.toy.8{user_vocabulary.suffix}.abcd1234").touch()
    before = contents(tmp_path / "new")
    generate_data(Toy(), tmp_path / "new", "", Options(vocab_file=path))
    assert contents(tmp_path / "new") == before


def test_an_unknown_word_is_found_before_anything_is_written(tmp_path: Path) -> None:
    words = {
        word for pairs in Toy().pairs.values() for pair in pairs for side in pair.values() for word in side.split()
    }
    path = tmp_path / "v.tokens"
    path.write_text("\n".join(["<pad>", "<EOS>", *sorted(words)[:-1]]), "utf-8")
    message = failure(Toy(), tmp_path / "new", path)
    assert message.startswith(f"{path}: has no word {sorted(words)[-1]!r}; change the text")
    assert not (tmp_path / "new").exists()
