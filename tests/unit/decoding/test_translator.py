"""Text in, text out: as many lines, in their order, whatever is decoded together."""

from __future__ import annotations

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from models import Copier
from t2t_repro.data.vocabulary import Vocabulary
from t2t_repro.decoding.search import search
from t2t_repro.decoding.translator import EMPTY, Translation, Translator, batches, padded
from t2t_repro.hparam import DecodeHParams, HParams
from t2t_repro.model_folder import ModelFolder
from t2t_repro.models.transformer import Transformer

TEXTS = ["the dog", "", "a cat sat on the dog", " ", "cat", "Ω 漢", "\t", "the cat sat on the dog and the cat", "a"]


@pytest.fixture(scope="module")
def transformer(tiny_hparams: HParams, tiny_vocabulary: Vocabulary) -> Transformer:
    keras.utils.set_random_seed(1)
    return Transformer(tiny_hparams, tiny_vocabulary.size)


def copier(words: Vocabulary, ends: bool = True, **decode_hparams: float) -> Translator:
    return Translator(Copier(words.size, ends), words, DecodeHParams(**decode_hparams))  # type: ignore[arg-type]


def texts(translations: list[Translation]) -> list[str]:
    return [translation.text for translation in translations]


@pytest.mark.parametrize("batch_size", [1, 12, 2048])
def test_every_line_has_its_own_in_its_place(tiny_vocabulary: Vocabulary, batch_size: int) -> None:
    found = copier(tiny_vocabulary, batch_size=batch_size).translate(TEXTS)
    assert texts(found) == [text if text.strip() else "" for text in TEXTS]
    assert all(translation.score == pytest.approx(0, abs=1e-3) for translation in found)


def test_nothing_and_only_empty_lines(tiny_vocabulary: Vocabulary) -> None:
    ours = copier(tiny_vocabulary)
    assert ours.translate([]) == []
    assert ours.translate(["", "  ", "\t"]) == [EMPTY] * 3


def test_no_output_holds_a_line_end(tiny_vocabulary: Vocabulary) -> None:
    found = texts(copier(tiny_vocabulary).translate(["a\ncat\n", "\n", "a\r\u0085\u2028cat"]))
    assert found == ["a cat ", "", "a\r\u0085\u2028cat"]


def test_progress_counts_every_line_once(tiny_vocabulary: Vocabulary) -> None:
    counts: list[int] = []
    copier(tiny_vocabulary, batch_size=12).translate(TEXTS, advance=counts.append)
    assert sum(counts) == len(TEXTS)


def test_one_very_long_line_among_short_ones(tiny_vocabulary: Vocabulary) -> None:
    long = "the cat sat on the dog " * 60 + "."
    assert len(tiny_vocabulary.encode([long])[0]) > 300
    ours = copier(tiny_vocabulary, beam_size=2, batch_size=64)
    assert texts(ours.translate(["a cat", long, "dog"])) == ["a cat", long, "dog"]


def test_the_longest_output_is_the_inputs_length_and_so_many_more(tiny_vocabulary: Vocabulary) -> None:
    ours = copier(tiny_vocabulary, ends=False, extra_length=3)
    sources = tiny_vocabulary.encode(["a", "the cat sat"])
    found = search(ours.model, ours.decode_hparams, padded(sources)).ids[:, 0].numpy()
    assert (found != 0).sum(axis=1).tolist() == [len(source) + 3 for source in sources]


def test_what_is_decoded_together_changes_nothing(tiny_vocabulary: Vocabulary, transformer: Transformer) -> None:
    ours, theirs = (
        Translator(transformer, tiny_vocabulary, DecodeHParams(extra_length=3, batch_size=size)) for size in (1, 500)
    )
    found, expected = ours.translate(TEXTS), theirs.translate(TEXTS)
    assert texts(found) == texts(expected)
    assert len(set(texts(found))) > 3
    assert [each.score for each in found] == pytest.approx([each.score for each in expected], rel=1e-4)
    assert texts(theirs.translate(TEXTS[::-1])) == texts(found)[::-1]


@pytest.mark.parametrize(("beam_size", "neighborhood"), [(1, 0), (3, 0), (1, 2), (3, 2)])
def test_the_score_is_the_models(
    tiny_vocabulary: Vocabulary, tiny_hparams: HParams, beam_size: int, neighborhood: int
) -> None:
    keras.utils.set_random_seed(1)
    hparams = dataclasses.replace(tiny_hparams, self_attention_neighborhood=neighborhood)
    transformer = Transformer(hparams, tiny_vocabulary.size)
    ours = Translator(transformer, tiny_vocabulary, DecodeHParams(beam_size, alpha=0.8, extra_length=3))
    source = np.array(tiny_vocabulary.encode(["the cat"]), np.int32)
    best = search(transformer, ours.decode_hparams, source)
    ids = best.ids.numpy()[0]
    length = int((ids != 0).sum())
    logits = np.asarray(transformer(source, ids), np.float64)[0, :length]
    log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    total = log_probs[np.arange(length), ids[0, :length]].sum()
    assert float(best.scores[0, 0]) == pytest.approx(total / ((5 + length) / 6) ** 0.8, rel=1e-4)


def test_from_dir(folder: ModelFolder, transformer: Transformer) -> None:
    tf.train.Checkpoint(
        weights={variable.path: variable.value for variable in transformer.trainable_variables},
        step=tf.Variable(3, dtype=tf.int64),
        vocabulary_fingerprint=tf.Variable(folder.vocabulary.fingerprint),
    ).write(str(folder.path / "model.ckpt-3"))
    ours = Translator.from_dir(str(folder.path), beam_size=2, extra_length=3)
    assert ours.decode_hparams == DecodeHParams(beam_size=2, extra_length=3)
    theirs = Translator(transformer, folder.vocabulary, ours.decode_hparams)
    assert ours.translate(["the cat"]) == theirs.translate(["the cat"])


def test_batches_hold_every_number_once_longest_first() -> None:
    lengths = [3, 9, 1, 4, 4, 50, 2]
    numbers = [0, 1, 3, 4, 5, 6]
    found = list(batches(numbers, lengths, 12))
    assert sorted(number for batch in found for number in batch) == numbers
    order = [lengths[number] for batch in found for number in batch]
    assert order == sorted(order, reverse=True)
    assert all(len(batch) * lengths[batch[0]] <= 12 or len(batch) == 1 for batch in found)
    assert list(batches([], lengths, 12)) == []
