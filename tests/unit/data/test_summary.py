"""Tests the summary of generated data against figures that the tests compute from the text."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece

from t2t_repro.corpora.parallel import Pair
from t2t_repro.data import batching, summary
from t2t_repro.data.datagen import generate_data
from t2t_repro.data.vocabularies.kinds import load_vocabulary
from t2t_repro.data.vocabularies.tensor2tensor import ByteVocabulary
from t2t_repro.problem import Problem

WORDS = ("red", "green", "house", "tree", "small", "large", "river")


def text(number: int) -> str:
    return " ".join(WORDS[(number + place) * 3 % 7] for place in range(number % 11 + 1))


class Toy(Problem):
    """A problem with English text on both sides. The dev split also has characters outside the alphabet."""

    num_train_shards = 3

    def __init__(self, **settings: Any) -> None:
        super().__init__({"vocab_size": 320, **settings}, name="toy")

    def generate(self, split: str, tmp_dir: str) -> Iterator[Pair]:
        for number in range(8000 if split == "train" else 40):
            yield {"inputs": text(number), "targets": text(number * 7 + 1)}
        yield {"inputs": "", "targets": "red"}
        if split == "train":
            yield {"inputs": "red", "targets": " ".join(["house"] * 300)}
        else:
            yield {"inputs": "漢字 " * 50 + "red", "targets": "😀"}


def stored(folder: Path) -> dict[str, Any]:
    """Returns the summaries in a folder's datagen.json as {problem: summary}."""
    return dict(json.loads((folder / "datagen.json").read_text("utf-8")))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with the generated data of Toy."""
    folder = tmp_path_factory.mktemp("data")
    generate_data(Toy(), folder, "")
    return folder


@pytest.fixture
def toy_summary(data: Path) -> dict[str, Any]:
    """Returns the summary of Toy's data, read from datagen.json."""
    return dict(stored(data)["toy"])


@pytest.fixture(scope="module")
def lengths(data: Path) -> dict[str, np.ndarray]:
    """Returns {split: source and target lengths [2, N] of the kept pairs}, computed by SentencePiece directly."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(data / "vocab.toy.320.model"))
    return {
        split: np.array(
            [
                [len(processor.Encode(pair[side])) + 1 for side in ("inputs", "targets")]
                for pair in Toy().generate(split, "")
                if pair["inputs"]
            ],
            np.int32,
        ).T
        for split in ("train", "dev")
    }


@pytest.mark.parametrize("split", ["train", "dev"])
def test_pairs_tokens_and_mean_lengths(split: str, toy_summary: dict[str, Any], lengths: dict[str, np.ndarray]) -> None:
    figures, count = toy_summary["splits"][split], lengths[split].shape[1]
    assert (figures["pairs_read"], figures["pairs_kept"]) == (count + 1, count)
    assert figures["pairs_dropped"] == {"empty side": 1}
    for side, tokens in zip(("inputs", "targets"), lengths[split].sum(axis=1), strict=True):
        assert figures["tokens"][side] == tokens
        assert figures["mean_length"][side] == pytest.approx(tokens / count, abs=0.0051)


def test_the_byte_share_is_that_of_all_text(toy_summary: dict[str, Any], data: Path) -> None:
    processor = sentencepiece.SentencePieceProcessor(model_file=str(data / "vocab.toy.320.model"))
    texts = [pair[side] for split in ("train", "dev") for pair in Toy().generate(split, "")
             for side in ("inputs", "targets") if pair["inputs"]]  # fmt: skip
    pieces = [piece for line in texts for piece in processor.Encode(line, out_type=str)]
    bytes_outside = len([piece for piece in pieces if re.fullmatch("<0x..>", piece)])
    assert bytes_outside == len("漢字".encode()) * 50 + len("😀".encode())
    assert toy_summary["byte_share"] == round(bytes_outside / sum(len(line.encode()) for line in texts), 6) > 0
    assert toy_summary["vocabulary_size"] == processor.GetPieceSize()


def test_steps_and_padding_are_those_of_the_first_epoch(
    toy_summary: dict[str, Any], lengths: dict[str, np.ndarray]
) -> None:
    train = lengths["train"]
    epoch = batching.plan(train, 25000, 256, seed=1, epoch=0)
    tokens = positions = 0
    for step in range(epoch.steps):
        for examples in batching.micro_batches(train, epoch.blocks(step), 4096, 1):
            tokens += train[:, examples].sum()
            positions += len(examples) * (train[0, examples].max() + train[1, examples].max())
    figures = toy_summary["splits"]["train"]["as_transformer_base"]
    assert figures == {
        "batch_size": 25000,
        "max_length": 256,
        "longer_pairs": 1,
        "steps_an_epoch": epoch.steps,
        "padding": pytest.approx(1 - tokens / positions, abs=1e-4),
    }
    assert figures["padding"] > 0 and epoch.steps > 1


def test_a_text_with_only_long_pairs_has_no_steps(tmp_path: Path) -> None:
    class Long(Toy):
        def generate(self, split: str, tmp_dir: str) -> Iterator[Pair]:
            yield {"inputs": "red " * 1000, "targets": "red"}

    generate_data(Long(), tmp_path, "")
    figures = stored(tmp_path)["toy"]["splits"]["train"]["as_transformer_base"]
    assert (figures["padding"], figures["steps_an_epoch"], figures["longer_pairs"]) == (0.0, 0, 1)


def test_the_file_keeps_the_summaries_of_other_problems(tmp_path: Path) -> None:
    for problem, figures in (("first", {"a": 1}), ("second", {"b": "ö"}), ("first", {"c": 3})):
        summary.save(tmp_path, problem, figures, tmp_path)
    assert stored(tmp_path) == {"first": {"c": 3}, "second": {"b": "ö"}}
    summary.save(tmp_path / "other", "third", {}, tmp_path)
    assert stored(tmp_path / "other") == stored(tmp_path) | {"third": {}}


@pytest.mark.parametrize("contents", [b"", b'{"other": ', b"[1, 2]", b"3", b"\xff\xfe"])
def test_a_damaged_file_is_replaced(tmp_path: Path, contents: bytes) -> None:
    (tmp_path / "datagen.json").write_bytes(contents)
    summary.save(tmp_path, "toy", {"a": 1}, tmp_path)
    assert stored(tmp_path) == {"toy": {"a": 1}}


def test_the_same_figures_are_printed(
    toy_summary: dict[str, Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = summary.lines(toy_summary)
    train, base, dev, vocabulary = lines
    figures = toy_summary["splits"]["train"]
    assert train.startswith("train: 8,001 of 8,002 pairs, 1 dropped (empty side); tokens ")
    assert f"{figures['tokens']['inputs']:,} -> {figures['tokens']['targets']:,}" in train
    assert f"mean length {figures['mean_length']['inputs']} -> {figures['mean_length']['targets']}" in train
    assert dev.startswith("dev: 41 of 42 pairs, 1 dropped (empty side); ")
    assert "batch_size of 25,000" in base and "1 pairs over max_length 256" in base
    assert f"{100 * figures['as_transformer_base']['padding']:.1f}% padding" in base
    assert (
        vocabulary.startswith("vocabulary: 320 subwords; ") and f"{100 * toy_summary['byte_share']:.2f}%" in vocabulary
    )
    (tmp_path / "datagen.json").write_bytes(b'{"other": ')  # generate_data must overwrite a damaged summary.
    generate_data(Toy(), tmp_path, "")
    assert [line for line in capsys.readouterr().err.splitlines() if line in lines] == lines
    assert stored(tmp_path) == {"toy": toy_summary} and (tmp_path / "toy.json").exists()


def test_separate_vocabularies_are_both_counted(data: Path) -> None:
    vocabulary = ByteVocabulary().with_sources(load_vocabulary(data / "vocab.toy.320.model"))
    result = summary.summarize({}, {}, Counter(byte_pieces=1, text_bytes=8), vocabulary)
    assert summary.lines(result) == ["vocabularies: 320 -> 258 subwords; 12.50% of the text's bytes outside of it"]
