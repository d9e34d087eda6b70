"""Tests the parsing problems on a treebank of a few sentences."""

import gzip
import os
from pathlib import Path
from typing import Any

import pytest

from t2t_repro import registry
from t2t_repro.parsing import evalb
from t2t_repro.parsing.linearization import Repairs
from t2t_repro.problems.wsj_parsing import WsjParsing
from user_errors import user_error

FREE_SAMPLE = {
    "train_sections": "00,0100-0159",
    "dev_sections": "0160-0179",
    "test_sections": "0180-0199",
}


def write(folder: Path, *numbers: int) -> None:
    """Writes treebank files with these numbers. Each has a sentence with its number, and a tree
    without words.
    """
    for number in numbers:
        path = folder / f"wsj/{number // 100:02}/wsj_{number:04}.mrg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"\n( (S \n    (NP-SBJ-1 (NNP No.) (CD {number}) )\n    (VP (VBZ barks) (NP (-NONE- "
            "*-1) ))\n    (. .) ))\n( (NP (-NONE- *) ))\n",
            encoding="utf-8",
        )


def problem(name: str = "wsj_parsing", **settings: Any) -> WsjParsing:
    parsing = registry.problem(name, settings)
    assert isinstance(parsing, WsjParsing)
    return parsing


def numbers(parsing: WsjParsing, split: str, folder: Path) -> list[int]:
    """Returns the numbers of the files that `generate` reads for a split, taken from the files'
    sentences.
    """
    return [
        int(pair["inputs"].split()[1])
        for pair in parsing.generate(split, str(folder))
        if pair["inputs"]
    ]


def failure(parsing: WsjParsing, split: str, folder: Path) -> str:
    return user_error(lambda: list(parsing.generate(split, str(folder))))


def test_a_sentence_and_its_tree(tmp_path: Path) -> None:
    write(tmp_path, 2200)
    pair = {"inputs": "No. 2200 barks .", "targets": "(S (NP NNP CD )NP (VP VBZ )VP . )S"}
    empty = {"inputs": "", "targets": ""}  # pair of the file's tree without words
    assert list(problem().generate("dev", str(tmp_path))) == [pair, empty]
    with_xx = pair | {"targets": "(S (NP XX XX )NP (VP XX )VP . )S"}
    assert list(problem(word_symbol="XX").generate("dev", str(tmp_path))) == [with_xx, empty]
    with_words = pair | {"targets": "(S (NP No. 2200 )NP (VP barks )VP . )S"}
    assert list(problem(word_symbol="word").generate("dev", str(tmp_path))) == [with_words, empty]
    assert [pair["targets"] for pair in problem().test_set("dev", str(tmp_path))] == [
        "(TOP (S (NP (NNP No.) (CD 2200)) (VP (VBZ barks)) (. .)))"
    ]


def test_the_default_splits_are_the_usual_sections(tmp_path: Path) -> None:
    file_numbers = [
        number for section in range(25) for number in (100 * section + 1, 100 * section + 99)
    ]
    write(tmp_path, *file_numbers)
    for name in ("readme", "wsj_2202.mrg~", "wsj_2202.prd", "wsj_22022.mrg", ".wsj_2202.mrg"):
        (tmp_path / "wsj" / "22" / name).write_text("no tree", encoding="utf-8")
    (tmp_path / "wsj/22/wsj_2299.mrg").rename(tmp_path / "wsj/22/WSJ_2299.MRG")
    assert numbers(problem(), "train", tmp_path) == [
        number for number in file_numbers if 200 <= number < 2200
    ]
    assert numbers(problem(), "dev", tmp_path) == [2201, 2299]
    assert numbers(problem(), "test", tmp_path) == [2301, 2399]


def test_splits_may_name_sections_and_files(tmp_path: Path) -> None:
    write(tmp_path, *range(1, 200))
    sample = problem(**FREE_SAMPLE)
    sample.check()
    assert numbers(sample, "train", tmp_path) == list(range(1, 160))
    assert numbers(sample, "dev", tmp_path) == list(range(160, 180))
    assert numbers(sample, "test", tmp_path) == list(range(180, 200))
    mixed = problem(train_sections=" 0100 , 00-0102,0101-01 ")
    assert numbers(mixed, "train", tmp_path) == list(range(1, 200))
    assert numbers(problem(train_sections="0007,0003"), "train", tmp_path) == [3, 7]


def test_missing_sections_are_named_with_the_cure(tmp_path: Path) -> None:
    write(tmp_path, *(100 * section for section in range(2, 22) if section not in (3, 17)))
    (tmp_path / "wsj/03").mkdir()
    message = failure(problem(), "train", tmp_path)
    for named in (f"{tmp_path}/wsj: ", "--train_sections=02-21", "section 03, 17;", "LDC99T42"):
        assert named in message
    assert "section 02;" in failure(problem(train_sections="0250-0259"), "train", tmp_path)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        *(({"dev_sections": value}, "is not a section") for value in ("", "022", "21-02", "02,")),
        ({"train_sections": "02-22"}, "--train_sections and --dev_sections both have file 2200"),
        ({"dev_sections": "22-23"}, "--dev_sections and --test_sections both have file 2300"),
    ],
)
def test_wrong_sections_are_refused(settings: dict[str, str], reason: str) -> None:
    problem().check()
    assert reason in user_error(problem(**settings).check)


def test_outputs_become_trees_over_the_words_of_their_sources() -> None:
    sources = ["No. 7 barks .", "", "  ", "oh (no)", "a ,", "Go ."]
    outputs = [
        "(S (NP NNP CD )NP (VP VBZ )VP . )S",
        "(S NN )S",
        "",
        "",
        "(S NN NN )S",
        "(TOP (VP XX )VP . )TOP",
    ]
    lines, repairs = problem().finish(iter(sources), iter(outputs))
    assert lines == [
        "(TOP (S (NP (NNP No.) (CD 7)) (VP (VBZ barks)) (. .)))",
        "",
        "",
        "(TOP (XX oh) (XX -LRB-no-RRB-))",
        "(TOP (S (NN a) (, ,)))",
        "(TOP (VP (XX Go)) (. .))",
    ]
    assert repairs == Repairs(trees=2, words_missing=2, roots_joined=1, tags_changed=1)
    (line,), repairs = problem(word_symbol="word").finish(["Go , go ."], ["(S (VP Go , )VP . )S"])
    assert line == "(TOP (S (VP (XX Go) (, ,) (XX go)) (. .)))"
    assert repairs == Repairs(trees=1, words_missing=1)


def test_parsed_trees_follow_the_treebanks(tmp_path: Path) -> None:
    write(tmp_path, 200, 2200)
    folder = tmp_path / "parsed"
    folder.mkdir()
    (folder / "b").write_text(
        "(ROOT (S (NP (NN b) (CD 2))))\n\n(())\n ( ) \n(ROOT (FRAG (NN b) (CD 3)))",
        encoding="utf-8",
    )
    (folder / "a.gz").write_bytes(gzip.compress(b"( (S (NP-SBJ (NN a) (CD 1))))\n"))
    (folder / ".hidden").write_text("no tree", encoding="utf-8")
    semi = problem("wsj_parsing_semi", parsed_trees=str(folder), train_sections="02")
    semi.check()
    assert numbers(semi, "train", tmp_path) == [200, 1, 2, 3]
    pairs = list(semi.generate("train", str(tmp_path)))
    assert [pair["targets"] for pair in pairs[2:]] == [
        *("(S (NP NN CD )NP )S", "(S (NP NN CD )NP )S", "", "", "", "(FRAG NN CD )FRAG"),
    ]
    assert numbers(semi, "dev", tmp_path) == [2200]
    one = problem("wsj_parsing_semi", parsed_trees=str(folder / "a.gz"), train_sections="02")
    assert numbers(one, "train", tmp_path) == [200, 1]


@pytest.mark.parametrize(
    ("line", "reason"),
    [("(S (NN a)", "never ends"), ("(S (NN a)) (S (NN b))", "2 trees in one line")],
)
def test_a_line_that_is_not_a_tree_is_named(tmp_path: Path, line: str, reason: str) -> None:
    write(tmp_path, 200)
    path = tmp_path / "parsed"
    path.write_text(f"(S (NN a))\n{line}\n(S (NN c))\n")
    message = failure(
        problem("wsj_parsing_semi", parsed_trees=str(path), train_sections="02"), "train", tmp_path
    )
    assert message.startswith(f"{path}:2: ") and reason in message


def test_parsed_trees_must_exist(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for path in ("", tmp_path / "empty", tmp_path / "absent", tmp_path / "pipe"):
        parsing = problem("wsj_parsing_semi", parsed_trees=str(path))
        assert user_error(parsing.check).startswith(f"--parsed_trees={path}: no file there; ")


GOLD = [
    (
        "(TOP (S (NP (DT The) (NN dog)) (VP (VBD bit) (NP (DT the) (NN man)) (PP (IN in) (NP (DT "
        "the) (NN leg))))))"
    ),
    "(TOP (S (NP (NNP No.) (CD 7)) (VP (VBZ barks)) (. .)))",
    "(TOP (FRAG (UH Oh)))",
]
PARSED = [
    (
        "(TOP (S (NP (DT The) (NN dog)) (VP (VBD bit) (NP (NP (DT the) (NN man)) (PP (IN in) (NP "
        "(DT the) (NNS leg)))))))"
    ),
    *(GOLD[1], ""),
]


def test_scores_are_evalbs() -> None:
    summary = evalb.summarise(evalb.score_trees(GOLD, PARSED))
    scores = problem().scores(PARSED, GOLD)
    assert [(score.label, score.score) for score in scores] == [
        ("F1", summary.f_measure),
        ("labelled recall", summary.recall),
        ("labelled precision", summary.precision),
        ("complete match", summary.complete_match),
        ("tagging accuracy", summary.tagging_accuracy),
    ]
    assert {score.signature for score in scores} == {
        "evalb:COLLINS.prm|sentences:3|errors:0|skipped:1"
    }
    for symbol in ("word", "XX"):  # without tags in the output, their accuracy is no score
        assert problem(word_symbol=symbol).scores(PARSED, GOLD) == scores[:-1]
    assert user_error(problem().scores, PARSED[:2], [GOLD[0], "dog"]).startswith(
        "reference:2: 'dog' is outside"
    )


def test_outputs_of_the_reversed_problem_are_scored_as_text() -> None:
    sentences = ["The dog bit the man in the leg", "No. 7 barks ."]
    backward = registry.problem("wsj_parsing_rev")
    assert backward.finish(["(S XX )S"] * 2, iter(sentences)) == (sentences, Repairs())  # type: ignore[arg-type]
    scores = backward.scores(sentences, sentences)
    assert scores[0].label == "BLEU" and scores[0].score == pytest.approx(100)
