"""What t2t-datagen says of its data, computed again from the text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece

from t2t_repro.corpora.parallel import Pair
from t2t_repro.data import batching, description, summary
from t2t_repro.data.batching import Plan
from t2t_repro.data.datagen import generate_data
from t2t_repro.errors import UserError
from t2t_repro.problem import Problem

WORDS = ("red", "green", "house", "tree", "small", "large", "river")


def text(number: int) -> str:
    return " ".join(WORDS[(number + place) * 3 % 7] for place in range(number % 11 + 1))


class Toy(Problem):
    """English on both sides; in dev, and in some of train, with characters that the alphabet has not."""

    num_train_shards = 3

    def __init__(self, **settings: Any) -> None:
        super().__init__({"vocab_size": 320, **settings}, name="toy")

    def generate(self, split: str, tmp_dir: str) -> Iterator[Pair]:
        for number in range(8000 if split == "train" else 40):
            yield {"inputs": text(number), "targets": text(number * 7 + 1)}
        yield {"inputs": "", "targets": "red"}
        if split == "train":
            yield {"inputs": "red", "targets": "house " * 300}
        else:
            yield {"inputs": "漢字 " * 50 + "red", "targets": "😀"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Toy's data."""
    folder = tmp_path_factory.mktemp("data")
    generate_data(Toy(), folder, "")
    return folder


@pytest.fixture
def said(made: Path) -> dict[str, Any]:
    """What was said of Toy's data."""
    return dict(json.loads((made / "datagen.json").read_text("utf-8")))["toy"]


@pytest.fixture(scope="module")
def lengths(made: Path) -> dict[str, list[tuple[int, int]]]:
    """Tokens of each pair that is kept, with the end token, as SentencePiece itself counts them."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(made / "vocab.toy.320.model"))
    return {
        split: [
            (len(processor.Encode(pair["inputs"])) + 1, len(processor.Encode(pair["targets"])) + 1)
            for pair in Toy().generate(split, "")
            if pair["inputs"]
        ]
        for split in ("train", "dev")
    }


@pytest.mark.parametrize("split", ["train", "dev"])
def test_pairs_tokens_and_means(split: str, said: dict[str, Any], lengths: dict[str, list[tuple[int, int]]]) -> None:
    figures, expected = said["splits"][split], lengths[split]
    assert (figures["pairs_read"], figures["pairs_kept"]) == (len(expected) + 1, len(expected))
    assert figures["pairs_dropped"] == {"empty side": 1}
    for side, counts in zip(("inputs", "targets"), zip(*expected, strict=True), strict=True):
        assert figures["tokens"][side] == sum(counts)
        assert figures["mean_length"][side] == pytest.approx(sum(counts) / len(counts), abs=0.0051)


def test_the_byte_share_is_of_all_text(said: dict[str, Any], made: Path) -> None:
    processor = sentencepiece.SentencePieceProcessor(model_file=str(made / "vocab.toy.320.model"))
    texts = [pair[side] for split in ("train", "dev") for pair in Toy().generate(split, "")
             for side in ("inputs", "targets") if pair["inputs"]]  # fmt: skip
    pieces = [piece for each in texts for piece in processor.Encode(each, out_type=str)]
    bytes_outside = len([piece for piece in pieces if re.fullmatch("<0x..>", piece)])
    assert bytes_outside == len("漢字".encode()) * 50 + len("😀".encode())
    assert said["byte_share"] == round(bytes_outside / sum(len(each.encode()) for each in texts), 6) > 0
    assert said["vocabulary_size"] == processor.GetPieceSize()


def test_steps_and_padding_are_those_of_the_first_epoch(
    said: dict[str, Any], lengths: dict[str, list[tuple[int, int]]]
) -> None:
    epoch = batching.plan(np.array(lengths["train"], np.int32).T, 25000, 256, seed=1, epoch=0)
    real = positions = 0
    for step in range(epoch.steps):
        for examples in batching.micro_batches(np.array(lengths["train"]).T, epoch.blocks(step), 4096, 1):
            pairs = [lengths["train"][number] for number in examples]
            real += sum(source + target for source, target in pairs)
            positions += len(pairs) * (max(source for source, _ in pairs) + max(target for _, target in pairs))
    figures = said["splits"]["train"]["as_transformer_base"]
    assert figures == {
        "batch_size": 25000,
        "max_length": 256,
        "longer_pairs": 1,
        "steps_an_epoch": epoch.steps,
        "padding": pytest.approx(1 - real / positions, abs=1e-4),
    }
    assert figures["padding"] > 0 and epoch.steps > 1


def test_padding_by_hand() -> None:
    lengths = np.array([[2, 4, 3, 5], [3, 3, 1, 5]])
    whole = Plan(np.arange(4), np.array([0, 2, 4]), np.array([[0, 1]]))
    # Pairs 0 and 1: 2 * (4 + 3) positions, 12 filled; pairs 2 and 3: 2 * (5 + 5), 14 filled.
    assert summary.padding(lengths, whole) == pytest.approx(1 - 26 / 34)
    assert summary.padding(lengths, whole, max_tokens=5) == 0.0  # each pair is a micro-batch of its own
    nothing = Plan(np.arange(0), np.zeros(1, np.int64), np.empty((0, 2), np.int32))
    assert summary.padding(lengths, nothing) == 0.0


def test_empty_micro_batches_add_no_padding() -> None:
    """Blocks of long sources with short targets are cut into more micro-batches than others have pairs."""
    count = 30_000
    lengths = np.array([[250] * count + [3] * count, [3] * count + [250] * count], np.int32)
    epoch = batching.plan(lengths, 25000, 256, seed=1, epoch=0)
    cuts = [batching.micro_batches(lengths, epoch.blocks(step), 4096, 1) for step in range(epoch.steps)]
    assert any(len(examples) == 0 for cut in cuts for examples in cut)
    assert summary.padding(lengths, epoch) == pytest.approx(0.0, abs=0.01)


def test_padding_is_of_the_first_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = np.array([[2, 2, 1, 9], [2, 2, 1, 9]])
    epoch = Plan(np.arange(4), np.array([0, 2, 4]), np.array([[0], [1]]))
    assert summary.padding(lengths, epoch) == pytest.approx(1 - 28 / 44)
    monkeypatch.setattr(summary, "MAX_STEPS", 1)
    assert summary.padding(lengths, epoch) == 0.0


def test_the_summary_does_not_depend_on_the_number_of_processes(said: dict[str, Any], tmp_path: Path) -> None:
    generate_data(Toy(), tmp_path, "", 2)
    assert json.loads((tmp_path / "datagen.json").read_text("utf-8")) == {"toy": said}


def test_a_text_with_only_long_pairs_takes_no_steps(tmp_path: Path) -> None:
    class Long(Toy):
        def generate(self, split: str, tmp_dir: str) -> Iterator[Pair]:
            yield {"inputs": "red " * 1000, "targets": "red"}

    generate_data(Long(), tmp_path, "")
    figures = json.loads((tmp_path / "datagen.json").read_text("utf-8"))["toy"]["splits"]["train"]
    assert (
        figures["as_transformer_base"] | {"padding": 0.0, "steps_an_epoch": 0, "longer_pairs": 1}
        == (figures["as_transformer_base"])
    )


def test_the_file_keeps_what_it_says_of_other_problems(tmp_path: Path) -> None:
    summary.save(tmp_path, "first", {"a": 1})
    summary.save(tmp_path, "second", {"b": "ö"})
    summary.save(tmp_path, "first", {"c": 3})
    assert json.loads((tmp_path / "datagen.json").read_text("utf-8")) == {"first": {"c": 3}, "second": {"b": "ö"}}
    generate_data(Toy(), tmp_path, "")
    assert set(json.loads((tmp_path / "datagen.json").read_text("utf-8"))) == {"first", "second", "toy"}


@pytest.mark.parametrize("contents", [b"", b'{"other": ', b"[1, 2]", b"3", b"\xff\xfe"])
def test_a_file_that_is_damaged_is_written_anew_and_costs_no_data(tmp_path: Path, contents: bytes) -> None:
    (tmp_path / "datagen.json").write_bytes(contents)
    generate_data(Toy(), tmp_path, "")
    assert set(json.loads((tmp_path / "datagen.json").read_text("utf-8"))) == {"toy"}
    assert (tmp_path / "toy.json").exists()


def test_it_is_no_description_of_a_problem(made: Path) -> None:
    with pytest.raises(UserError, match=r"\(it holds toy\)"):
        description.load_problem(made, "numbers_ende")


def test_people_read_the_same_figures(said: dict[str, Any], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lines = summary.lines(said)
    train, base, dev, words = lines
    figures = said["splits"]["train"]
    assert train.startswith("train: 8,001 of 8,002 pairs, 1 dropped (empty side); tokens ")
    assert f"{figures['tokens']['inputs']:,} -> {figures['tokens']['targets']:,}" in train
    assert f"mean length {figures['mean_length']['inputs']} -> {figures['mean_length']['targets']}" in train
    assert dev.startswith("dev: 41 of 42 pairs, 1 dropped (empty side); ")
    assert "batch_size of 25,000" in base and "1 pairs over max_length 256" in base
    assert f"{100 * figures['as_transformer_base']['padding']:.1f}% padding" in base
    assert words.startswith("vocabulary: 320 subwords; ") and f"{100 * said['byte_share']:.2f}%" in words
    generate_data(Toy(), tmp_path, "")
    spoken = capsys.readouterr().err.splitlines()
    assert [line for line in spoken if line in lines] == lines
