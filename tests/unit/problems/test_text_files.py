"""Tests the problem text_files, which reads parallel text from the user's files."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from t2t_repro import registry
from t2t_repro.corpora.corpus import Corpus
from t2t_repro.errors import UserError
from toys import problem_of, train_pairs
from user_errors import user_error


@pytest.mark.parametrize("value", ["", "a.en", "a.en,", ",a.de", "a,b,c"])
def test_each_split_needs_two_files(value: str) -> None:
    for split in ("train", "dev"):
        problem = problem_of(**{"train": "a.en,a.de", split: value})
        with pytest.raises(UserError, match=f"--{split}=.*: name two files"):
            problem.check()


def test_a_pipe_is_refused_because_the_text_is_read_twice(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match=f"^--train={tmp_path}/pipe: not a regular file; "):
        registry.problem("text_files", {"train": f"{tmp_path}/pipe,b", "dev": "a,b"}).check()


def test_the_target_language_comes_from_the_user_or_is_unknown() -> None:
    files = {"train": "a.en,a.de", "dev": "b.en,b.de"}
    texts = ["Der Hund lief z.B. nicht weg."]
    for name, languages, expected in (
        ("text_files", "", ""),
        ("text_files", "en,de", "de"),
        ("text_files_rev", " en , de ", "en"),
        ("text_files_rev", "en_US,fra", "en"),
        ("text_files", "en,zh-CN", "zh"),
    ):
        problem = registry.problem(name, files | {"languages": languages})
        problem.check()
        assert problem.target_language == expected
        signatures = [score.signature for score in problem.scores(texts, texts)]
        assert len(signatures) == (6 if expected in ("de", "en") else 4)
        assert all(f"-{expected}-escaped" in signature for signature in signatures[4:])
    for languages, message in (
        ("de", "--languages=de: name two languages"),
        ("en,german", "--languages: 'german' is no code"),
        ("en,de,fr", "--languages=en,de,fr: name two languages"),
    ):
        with pytest.raises(UserError, match=message):
            registry.problem("text_files", files | {"languages": languages}).check()


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the current folder, which has small files of text."""
    monkeypatch.chdir(tmp_path)
    for name, lines in (
        ("a.en", "a\nb\n"),
        ("a.de", "c\nd\n"),
        ("b.en", "e\n"),
        ("b.de", "f\n"),
        ("b.fr.tsv", "e\tg\n"),
        ("a:2", "h\ni\n"),
        ("tag.de", "j\nk >>fr<< l\n"),
        ("c.jsonl", '{"en": "m", "de": "n"}'),
    ):
        Path(name).write_text(lines)
    return tmp_path


@pytest.mark.usefixtures("texts")
def test_a_list_of_corpora_is_a_flag_or_a_file() -> None:
    pairs = [("a", "c"), ("b", "d"), ("e", "g")]
    two = problem_of("a.en,a.de:1;b.fr.tsv:2.5")
    assert train_pairs(two) == pairs
    assert two.corpora("train") == (Corpus("a.de", 1.0), Corpus("b.fr.tsv", 2.5))
    Path("lists").mkdir()
    Path("lists/c.json").write_text(
        json.dumps({"x": {"files": ["../a.en", "../a.de"]}, "y": {"files": ["../b.fr.tsv"]}})
    )
    listed = problem_of("lists/c.json;c.jsonl", languages="en,de")
    assert train_pairs(listed) == [*pairs, ("m", "n")]
    assert listed.corpora("train") == (Corpus("x"), Corpus("y"), Corpus("c.jsonl"))
    assert train_pairs(problem_of("a.en,a:2")) == [("a", "h"), ("b", "i")]  # a name with a colon
    os.mkdir("d")
    shutil.copy("a.de", "d/a.de")
    names = [corpus.name for corpus in problem_of("a.en,a.de;a.en,d/a.de").corpora("train")]
    assert names == ["a.de", "d/a.de"]
    both = problem_of("a.en,a.de;b.fr.tsv", targets="de,fr")
    assert train_pairs(both) == [(">>de<< a", "c"), (">>de<< b", "d"), (">>fr<< e", "g")]
    assert both.symbols == (">>de<<", ">>fr<<")
    assert both.corpora("train")[1] == Corpus("b.fr.tsv", 0.0, "fr")


@pytest.mark.usefixtures("texts")
@pytest.mark.parametrize(
    ("train", "settings", "named"),
    [
        *(
            (f"a.en,a.de:{weight};c.jsonl:1", {}, f"a.de:{weight}")
            for weight in ("0", "-1", "nan", "inf", "x", "")
        ),
        ("a.en,b.de;b.en,a.de", {}, "a.en and b.de"),
        ("a.en,a.de;b.en,./a.de", {}, "./a.de"),
        ("a.en,a.de;b.en,b.en", {}, "b.en"),
        ("b.fr.tsv;b.fr.tsv", {}, "b.fr.tsv"),
        ("a.en,a.de:2;b.en,b.de", {}, "b.de"),
        ("a.en,a.de:2;b.en,b.de:1", {"corpus_temperature": 2.0}, "--corpus_temperature"),
        ("a.en,a.de;b.en,b.de", {"corpus_temperature": 0.5}, "--corpus_temperature=0.5"),
        ("a.en,a.de;b.en,b.de", {"corpus_temperature": float("nan")}, "--corpus_temperature=nan"),
        ("a.en,a.de", {"dev": "b.en,b.de:2"}, "--dev=b.en,b.de:2"),
        ("a.en,a.de;", {}, "--train=a.en,a.de;"),
        ("lists/c.json:2", {}, "lists/c.json:2"),
        ("a.en", {}, "--train=a.en"),
        ("a.en,a.de", {"targets": "de,fr"}, "fr"),
        ("a.en,a.de", {"targets": "de,de"}, "--targets=de,de"),
        ("a.en,a.de", {"targets": "de,"}, "--targets=de,"),
        ("a.en,a.de;c.jsonl", {"targets": "de"}, "c.jsonl"),
        ("a.en,tag.de;b.fr.tsv", {"targets": "de,fr"}, "tag.de:2:"),
        ("c.jsonl", {}, "c.jsonl:1:"),
    ],
)
def test_wrong_corpora_are_an_error_that_names_the_place(
    train: str, settings: dict[str, Any], named: str
) -> None:
    assert named in user_error(lambda: train_pairs(problem_of(train, **settings)))


@pytest.mark.usefixtures("texts")
@pytest.mark.parametrize(
    ("contents", "named"),
    [
        ("{", "c.json:1"),
        ("[]", "c.json"),
        ("{}", "c.json"),
        ('{"x": 1}', "x"),
        ('{"x": {}}', "x"),
        ('{"x": {"files": ["a.en", "a.de"], "wieght": 2}}', "'weight'"),
        ('{"x": {"files": ["a.en", "a.de"], "weight": 0}}', "x"),
        ('{"x": {"files": ["a.en", "a.de"], "weight": "2"}}', "weight"),
        ('{"x": {"files": "a.tsv"}}', "files"),
        ('{"x": {"files": ["a.en"]}}', "x"),
        ('{"x": {"files": [""]}}', "x"),
        ('{"x": {"files": ["a.en", "a.de"], "target_language": "de"}}', "--targets"),
    ],
)
def test_a_wrong_file_of_corpora_is_named(contents: str, named: str) -> None:
    Path("c.json").write_text(contents)
    message = user_error(lambda: train_pairs(problem_of("c.json")))
    assert "c.json" in message and named in message


def test_a_reversed_problem_has_no_target_languages() -> None:
    assert "--targets" in user_error(registry.problem, "text_files_rev", {"targets": "de,fr"})
