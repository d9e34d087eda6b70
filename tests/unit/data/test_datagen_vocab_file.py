"""Data in the subwords of another model: a vocabulary that is given is taken as it is, whatever interrupts."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from t2t_repro import registry
from t2t_repro.data import vocabulary
from t2t_repro.data.datagen import generate_data
from t2t_repro.data.description import load_description, load_problem
from t2t_repro.data.records import Records, find_shards
from t2t_repro.data.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.problem import Problem
from toys import GREEK, Toy, contents, lines


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """An English vocabulary's file; Greek is outside of it."""
    vocabulary.train(lines(60), 300).save(tmp_path / "old" / "vocab.other.32000.model")
    return tmp_path / "old" / "vocab.other.32000.model"


@pytest.fixture
def unlearnable(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on nothing can be learned, nor text be gathered for it."""
    monkeypatch.setattr(vocabulary, "train", None)
    monkeypatch.setattr(vocabulary, "sample", None)


def failure(problem: Problem, folder: Path, vocab_file: Path | str) -> str:
    with pytest.raises(UserError) as error:
        generate_data(problem, folder, "", vocab_file=vocab_file)
    assert "\n" not in str(error.value)
    return str(error.value)


def interrupt(*when: object) -> Callable[[str, int, int], None]:
    def watch(*place: object) -> None:
        if place == when:
            raise KeyboardInterrupt

    return watch


def broken_off(folder: Path, vocab_file: Path | str, *when: object) -> None:
    with pytest.raises(KeyboardInterrupt):
        generate_data(Toy(watch=interrupt(*when)), folder, "", vocab_file=vocab_file)


@pytest.mark.usefixtures("unlearnable")
def test_all_text_is_written_in_its_subwords(tmp_path: Path, old: Path) -> None:
    problem = Toy()
    generate_data(problem, tmp_path / "new", "", vocab_file=old)
    words = Vocabulary.load(old)
    for split in ("train", "dev"):
        read = Records(find_shards(tmp_path / "new", "toy", split))
        ids = [[side.tolist() for side in read[number]] for number in range(len(read))]
        assert ids == [words.encode([pair["inputs"], pair["targets"]]) for pair in problem.pairs[split]]


@pytest.mark.usefixtures("unlearnable")
def test_the_description_says_what_the_vocabulary_is(tmp_path: Path, old: Path) -> None:
    numbers = registry.problem("numbers_ende", {"train_size": 30})
    made = generate_data(numbers, tmp_path / "new", "", vocab_file=old)
    problem, words, description = load_problem(tmp_path / "new", "numbers_ende")
    assert words.model == old.read_bytes()
    assert made == description
    assert description.vocabulary_given
    assert description.vocabulary == f"vocab.numbers_ende.{words.size}.model"
    assert description.vocabulary_fingerprint == words.fingerprint
    assert problem.settings == dataclasses.replace(numbers.settings, vocab_size=words.size)


def test_the_vocabulary_that_would_be_learned_gives_the_same_records(tmp_path: Path) -> None:
    problem = Toy()
    problem.settings = Problem.Settings(300)
    learned = generate_data(problem, tmp_path / "learned", "")
    path = tmp_path / "learned" / learned.vocabulary
    given = generate_data(Toy(), tmp_path / "given", "", vocab_file=path)
    assert not learned.vocabulary_given
    assert given == dataclasses.replace(learned, vocabulary_given=True)
    both = (contents(tmp_path / name) for name in ("learned", "given"))
    assert len({tuple(sorted((folder | {"toy.json": b""}).items())) for folder in both}) == 1


def test_it_takes_the_place_of_a_learned_one(tmp_path: Path, old: Path) -> None:
    generate_data(Toy(), tmp_path / "fresh", "", vocab_file=old)
    generate_data(Toy(), tmp_path / "again", "")
    generate_data(Toy(), tmp_path / "again", "", vocab_file=old)
    again = contents(tmp_path / "again")
    again.pop("vocab.toy.400.model")  # as after another --vocab_size
    assert again == contents(tmp_path / "fresh")


@pytest.mark.usefixtures("unlearnable")
@pytest.mark.parametrize(("split", "number"), [("train", 0), ("train", 20), ("dev", 9)])
def test_an_interrupted_run_goes_on_with_it(tmp_path: Path, old: Path, split: str, number: int) -> None:
    generate_data(Toy(), tmp_path / "unbroken", "", vocab_file=old)
    broken_off(tmp_path / "broken", old, split, 2, number)
    [copied] = (tmp_path / "broken").glob("vocab.*")
    watched = [copied, *(tmp_path / "broken").glob("toy-*-of-00003")]
    written = {path: path.stat().st_mtime_ns for path in watched}
    generate_data(Toy(), tmp_path / "broken", "", vocab_file=old)
    assert contents(tmp_path / "broken") == contents(tmp_path / "unbroken")
    assert {path: path.stat().st_mtime_ns for path in watched} == written


@pytest.mark.parametrize("interrupted", [False, True])
def test_another_one_of_the_same_size_is_other_data(tmp_path: Path, old: Path, interrupted: bool) -> None:
    size = Vocabulary.load(old).size
    other = vocabulary.train(lines(60, GREEK), size)
    other.save(tmp_path / "other.model")
    assert other.size == size
    generate_data(Toy(), tmp_path / "fresh", "", vocab_file=tmp_path / "other.model")
    if interrupted:
        broken_off(tmp_path / "again", old, "dev", 2, 5)
    else:
        generate_data(Toy(), tmp_path / "again", "", vocab_file=old)
    generate_data(Toy(), tmp_path / "again", "", vocab_file=tmp_path / "other.model")
    assert contents(tmp_path / "again") == contents(tmp_path / "fresh")


def test_a_run_that_learned_one_does_not_go_on_with_another_of_its_size(tmp_path: Path, old: Path) -> None:
    problem = Toy(watch=interrupt("dev", 2, 5))
    problem.settings = Problem.Settings(Vocabulary.load(old).size)
    generate_data(Toy(), tmp_path / "fresh", "", vocab_file=old)
    with pytest.raises(KeyboardInterrupt):
        generate_data(problem, tmp_path / "again", "")
    generate_data(Toy(), tmp_path / "again", "", vocab_file=old)
    assert contents(tmp_path / "again") == contents(tmp_path / "fresh")


@pytest.mark.usefixtures("unlearnable")
@pytest.mark.parametrize("interrupted", [False, True])
def test_no_other_is_learned_in_its_place(tmp_path: Path, old: Path, interrupted: bool) -> None:
    if interrupted:
        broken_off(tmp_path / "new", old, "train", 2, 20)
    else:
        generate_data(Toy(), tmp_path / "new", "", vocab_file=old)
    before, read = contents(tmp_path / "new"), []
    message = failure(Toy(watch=lambda *place: read.append(place)), tmp_path / "new", "")
    assert f"{tmp_path}/new: the vocabulary of toy there was given by --vocab_file" in message
    assert not read and contents(tmp_path / "new") == before


@pytest.mark.usefixtures("unlearnable")
def test_a_data_dirs_own_vocabulary_may_be_given(tmp_path: Path, old: Path) -> None:
    first = generate_data(Toy(), tmp_path / "new", "", vocab_file=old)
    before = contents(tmp_path / "new")
    own = tmp_path / "new" / first.vocabulary
    generate_data(Toy(), tmp_path / "new", "", vocab_file=own)
    assert contents(tmp_path / "new") == before

    def watch(*place: object) -> None:
        if place == ("train", 2, 20):
            raise UserError("line 21 is damaged")

    (tmp_path / "new" / "datagen.json").unlink()  # of all problems there
    (tmp_path / "link").symlink_to(own)
    for path in (own, tmp_path / "link"):
        failure(Toy(watch=watch), tmp_path / "new", path)
        assert contents(tmp_path / "new") == {own.name: old.read_bytes()}
    failure(Toy(watch=watch), tmp_path / "new", old)
    assert contents(tmp_path / "new") == {}
    assert old.is_file()


@pytest.mark.parametrize("damage", ["gone", "empty", "truncated", "a folder", "text"])
def test_one_that_is_none_is_named_before_anything_is_read(tmp_path: Path, old: Path, damage: str) -> None:
    generate_data(Toy(), tmp_path / "new", "")
    before, model, read = contents(tmp_path / "new"), old.read_bytes(), []
    old.unlink()
    if damage == "a folder":
        old.mkdir()
    elif damage != "gone":
        old.write_bytes({"empty": b"", "truncated": model[: len(model) // 2], "text": b"the\nof\n"}[damage])
    message = failure(Toy(watch=lambda *place: read.append(place)), tmp_path / "new", old)
    assert message.startswith(f"{old}: ")
    assert not read and contents(tmp_path / "new") == before


def test_one_without_the_problems_symbols_is_refused(tmp_path: Path, old: Path) -> None:
    problem = Toy()
    problem.symbols = ("▁(NP", "▁)NP", "▁red")  # type: ignore[misc]
    message = failure(problem, tmp_path / "new", old)
    assert f"--vocab_file={old}: lacks 2 of the 3 symbols of problem toy, ▁(NP for one" in message
    assert not (tmp_path / "new").exists()
    vocabulary.train(lines(60, GREEK), 320, problem.symbols).save(old)
    generate_data(problem, tmp_path / "new", "", vocab_file=old)


def test_mistakes_in_the_text_are_met_before_anything_is_written(tmp_path: Path, old: Path) -> None:
    generate_data(Toy(), tmp_path / "new", "")
    before = contents(tmp_path / "new")

    def watch(*place: object) -> None:
        if place == ("train", 1, 49):
            raise UserError("line 50 is damaged")

    assert failure(Toy(watch=watch), tmp_path / "new", old) == "line 50 is damaged"
    assert contents(tmp_path / "new") == before


def test_a_description_from_before_there_was_a_choice_is_of_a_learned_one(tmp_path: Path) -> None:
    generate_data(Toy(), tmp_path, "")
    path = tmp_path / "toy.json"
    fields = json.loads(path.read_text("utf-8"))
    assert fields.pop("vocabulary_given") is False
    path.write_text(json.dumps(fields), "utf-8")
    problem = Toy()
    assert not load_description(tmp_path, problem).vocabulary_given
    generate_data(problem, tmp_path, "")
