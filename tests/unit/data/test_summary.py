"""Tests the summary of generated data against figures that the tests compute from the text."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from t2t_repro.corpora.corpus import StoredCorpus
from t2t_repro.corpora.parallel import Pair
from t2t_repro.data import summary
from t2t_repro.data.datagen import generate_data
from t2t_repro.data.dataset import SPLITS
from t2t_repro.data.vocabularies.kinds import load_vocabulary
from t2t_repro.data.vocabularies.tensor2tensor import ByteVocabulary
from t2t_repro.problem import Problem
from toys import Toy

WORDS = ("red", "green", "house", "tree", "small", "large", "river")


def text(number: int) -> str:
    return " ".join(WORDS[(number + place) * 3 % 7] for place in range(number % 40 + 1))


def pairs(split: str) -> list[Pair]:
    """Returns English text on both sides. The dev split also has characters outside the
    alphabet.
    """
    odd = {"train": ("red", " ".join(["house"] * 300)), "dev": ("漢字 " * 50 + "red", "😀")}
    count = 2000 if split == "train" else 40
    texts = [
        *((text(number), text(number * 7 + 1)) for number in range(count)),
        ("", "red"),
        odd[split],
    ]
    return [{"inputs": source, "targets": target} for source, target in texts]


def stored(folder: Path) -> dict[str, Any]:
    """Returns the summaries in a folder's datagen.json as {problem: summary}."""
    return dict(json.loads((folder / "datagen.json").read_text("utf-8")))


def test_the_figures_are_those_of_the_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "datagen.json").write_bytes(b'{"other": ')  # a damaged summary is replaced
    problem = Toy()
    problem.pairs = {split: pairs(split) for split in SPLITS}
    problem.settings = Problem.Settings(320)
    generate_data(problem, tmp_path, "")
    toy_summary = stored(tmp_path)["toy"]
    processor = sentencepiece.SentencePieceProcessor(
        model_file=str(tmp_path / "vocab.toy.320.model")
    )
    pieces = list[str]()
    text_bytes = 0
    for split, figures in toy_summary["splits"].items():
        kept = [pair for pair in pairs(split) if pair["inputs"]]
        text_bytes += sum(len(line.encode()) for pair in kept for line in pair.values())
        assert (figures["pairs_read"], figures["pairs_kept"]) == (len(kept) + 1, len(kept))
        assert figures["pairs_dropped"] == {"empty side": 1}
        for side in ("inputs", "targets"):
            encoded = [processor.Encode(pair[side], out_type=str) for pair in kept]
            tokens = sum(len(row) + 1 for row in encoded)
            assert figures["tokens"][side] == tokens
            assert figures["mean_length"][side] == pytest.approx(tokens / len(kept), abs=0.0051)
            pieces += itertools.chain.from_iterable(encoded)
    bytes_outside = len([piece for piece in pieces if re.fullmatch("<0x..>", piece)])
    assert bytes_outside == len("漢字".encode()) * 50 + len("😀".encode())
    assert toy_summary["byte_share"] == round(bytes_outside / text_bytes, 6) > 0
    assert toy_summary["vocabulary_size"] == processor.GetPieceSize()

    printed = capsys.readouterr().err
    for line in (
        "train: 2,001 of 2,002 pairs, 1 dropped (empty side); tokens ",
        f"subwords; {100 * toy_summary['byte_share']:.2f}%",
    ):
        assert line in printed

    vocabulary = ByteVocabulary().with_sources(load_vocabulary(tmp_path / "vocab.toy.320.model"))
    stored_corpus = StoredCorpus(stop=1, byte_pieces=1, text_bytes=8)
    result = summary.summarize({"train": [stored_corpus]}, vocabulary) | {"splits": {}}
    assert summary.lines(result) == [
        "vocabularies: 320 -> 258 subwords; 12.50% of the text's bytes outside of it"
    ]


def test_the_file_keeps_the_summaries_of_other_problems(tmp_path: Path) -> None:
    for problem, figures in (("first", {"a": 1}), ("second", {"b": "ö"}), ("first", {"c": 3})):
        summary.save(tmp_path, problem, figures, tmp_path)
    assert stored(tmp_path) == {"first": {"c": 3}, "second": {"b": "ö"}}
    summary.save(tmp_path / "other", "third", {}, tmp_path)
    assert stored(tmp_path / "other") == stored(tmp_path) | {"third": {}}
