"""Tests that a split's loss agrees with the losses of single sentences, and that decoded text has
correct scores.
"""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import keras
import numpy as np
import pytest
import sacrebleu
import tensorflow as tf

from models import Copier
from shards import write_shard
from t2t_repro.corpora.corpus import StoredCorpus
from t2t_repro.data.records import Records, shard_path
from t2t_repro.data.vocabularies import sentencepiece
from t2t_repro.data.vocabularies.tensor2tensor import ByteVocabulary
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import Stopped
from t2t_repro.hparam import DecodeHParams, HParams
from t2t_repro.models import variants
from t2t_repro.problem import Problem
from t2t_repro.training.evaluation import EVAL_BEAM, DevDecoder, Evaluation, Evaluator, spread
from t2t_repro.training.logs import Logs
from t2t_repro.training.metrics_log import read_metrics
from user_errors import user_error

pytestmark = pytest.mark.usefixtures("no_graphs")

PAIRS = [
    ([3, 4, 5, 6, 1], [7, 1]),
    ([8, 1], [9, 10, 11, 3, 1]),
    ([4, 1], [5, 1]),
    ([6, 7, 8, 1], [9, 10, 1]),
]
TEXTS = [
    ("the cat sat on the dog", "the cat sat on a dog"),
    ("a cat", "the cat"),
    ("a dog on the cat sat", "a dog on the cat sat on the dog"),
    ("Ω 漢 the  dog", "Ω 漢 the  dog."),
    ("dog", "dog"),
    ("on the dog the cat sat", "on the dog a cat sat"),
    ("cat sat", "cats"),
]


class Upper(Problem):
    """A problem with a quick search, whose outputs are joined with their sources and written in
    capitals.
    """

    decode_hparams = DecodeHParams(2, batch_size=20, extra_length=3)

    def finish(self, sources: Sequence[str], outputs: Sequence[str]) -> tuple[list[str], str]:
        return [
            f"{source}|{output}".upper() for source, output in zip(sources, outputs, strict=True)
        ], ""


@pytest.fixture(scope="module")
def model(tiny_hparams: HParams) -> Any:
    # With this seed the model predicts two of the twelve target tokens correctly, one of them an
    # end token.
    keras.utils.set_random_seed(4)
    return variants.transformer(tiny_hparams, 12)


def written(
    folder: Path, pairs: Sequence[tuple[list[int], list[int]]], was_reversed: bool = False
) -> Records:
    path = shard_path(folder, "toy", "dev", 0, 1)
    write_shard(path, pairs)
    return Records([path], was_reversed)


def encoded(
    words: Vocabulary, texts: Sequence[tuple[str, str]]
) -> list[tuple[list[int], list[int]]]:
    sources, targets = (words.encode(side) for side in zip(*texts, strict=True))
    return list(zip(sources, targets, strict=True))


def dev_decoder(words: Vocabulary, dev: Records, lines: int, max_length: int = 256) -> DevDecoder:
    hparams = HParams(max_length=max_length)
    folder: Any = SimpleNamespace(
        problem=Upper({}), vocabulary=words, hparams=hparams, tags=[*words.tags]
    )
    return DevDecoder(Copier(300), folder, dev, lines)


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return written(tmp_path, PAIRS)


def log_probs(model: Any, source: list[int], target: list[int]) -> np.ndarray:
    """Returns the log-probability of each vocabulary entry at each position, float64 [T, V]."""
    logits = np.asarray(model(np.array([source]), np.array([target])), np.float64)[0]
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def losses_of(model: Any, source: list[int], target: list[int]) -> np.ndarray:
    """Returns the loss of each target token, float64 [T]."""
    return -log_probs(model, source, target)[np.arange(len(target)), target]


def mean_loss(model: Any, pairs: list[tuple[list[int], list[int]]]) -> float:
    return float(np.concatenate([losses_of(model, *pair) for pair in pairs]).mean())


@pytest.mark.parametrize("max_tokens", [8, 1000])
def test_the_figures_agree_with_those_of_single_sentences(
    model: Any, records: Records, max_tokens: int
) -> None:
    result = Evaluator(model, records, max_tokens)()
    loss = mean_loss(model, PAIRS)
    assert result.loss == pytest.approx(loss, rel=1e-5)
    assert result.perplexity == pytest.approx(math.exp(loss), rel=1e-5)
    assert math.isfinite(Evaluation(1e6, 0.0).perplexity)
    predicted = [log_probs(model, *pair).argmax(axis=1) == pair[1] for pair in PAIRS]
    assert result.accuracy == np.concatenate(predicted).mean() > 0


def test_padding_is_never_correct_and_the_first_of_equal_logits_counts(records: Records) -> None:
    def predict_even_tokens(inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        return tf.one_hot(targets - targets % 2, 12)

    assert Evaluator(predict_even_tokens, records, 1000)().accuracy == 2 / 12

    def tie_5_and_9(inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        return tf.one_hot(5, 12) + tf.one_hot(9, 12) + tf.zeros_like(targets, tf.float32)[..., None]

    assert Evaluator(tie_5_and_9, records, 1000)().accuracy == 1 / 12


def test_examples_that_training_omits_are_omitted(
    model: Any, records: Records, tmp_path: Path, tiny_vocabulary: Vocabulary
) -> None:
    short = Evaluator(model, records, 1000, max_length=4)
    assert short().loss == pytest.approx(mean_loss(model, PAIRS[2:]), rel=1e-5)
    assert short.source_use() != Evaluator(model, records, 1000).source_use()
    assert "dev pairs are longer than max_length=1" in user_error(
        Evaluator, model, records, 1000, max_length=1
    )
    long = encoded(tiny_vocabulary, [("dog " * 40, "a"), ("a", "cat " * 40), ("a cat", "a dog")])
    decoded = dev_decoder(tiny_vocabulary, written(tmp_path, long), 9, max_length=20)()
    assert [source for source, *_ in decoded.samples] == ["a cat"]


def test_a_limited_number_of_batches_is_spread_over_the_split(model: Any, records: Records) -> None:
    # Each of the four batches has one target, of 2, 2, 3 or 5 tokens. If only two batches are
    # evaluated, one is from the shorter half (2 tokens) and one from the longer half (3 or 5
    # tokens).
    sample = Evaluator(model, records, 1, max_batches=2)()
    assert sample.batches == 2
    assert any(
        sample.loss == pytest.approx(mean_loss(model, [PAIRS[short], PAIRS[long]]), rel=1e-5)
        for short in (0, 2)
        for long in (1, 3)
    )
    whole = Evaluator(model, records, 1, max_batches=9)()
    assert whole.batches == 0  # which means all batches: the split has fewer than 9
    assert whole.loss == pytest.approx(mean_loss(model, PAIRS), rel=1e-5)


def test_source_use_agrees_with_that_of_single_sentences(model: Any, records: Records) -> None:
    # Ordered by target length and then by source length, the pairs are 2, 0, 3, 1. Each gets the
    # source before it.
    order = [2, 0, 3, 1]
    rise = 0.0
    for number, other in zip(order, np.roll(order, 1), strict=True):
        source, target = PAIRS[number]
        rise += (losses_of(model, PAIRS[other][0], target) - losses_of(model, source, target)).sum()
    assert abs(rise) > 0.1
    assert Evaluator(model, records, 1000).source_use() == pytest.approx(rise / 12, rel=1e-4)


def test_a_split_without_two_different_sources_has_no_source_use(tmp_path: Path) -> None:
    records = written(tmp_path, [([3, 4, 1], [5, 1])] * 3)
    assert Evaluator(Copier(12), records, 1000).source_use() is None


def test_lines_of_the_split_are_decoded_finished_and_scored(
    tmp_path: Path, tiny_vocabulary: Vocabulary
) -> None:
    decoded = dev_decoder(tiny_vocabulary, written(tmp_path, encoded(tiny_vocabulary, TEXTS)), 6)()
    finished = []
    for number in spread(len(TEXTS), 6):
        source, target = TEXTS[number]
        finished.append((source, f"{source}|{target}".upper(), f"{source}|{source}".upper()))
    assert decoded.samples == finished[:5] and decoded.lines == 6
    _, references, outputs = (list(side) for side in zip(*finished, strict=True))
    scores = {score.label: score.score for score in decoded.scores}
    assert decoded.scores[0].label == "BLEU" and 0 < scores["BLEU"] < 100
    assert scores["BLEU"] == pytest.approx(sacrebleu.corpus_bleu(outputs, [references]).score)
    assert scores["chrF"] == pytest.approx(sacrebleu.corpus_chrf(outputs, [references]).score)


def test_an_evaluation_uses_a_smaller_beam_than_a_large_one_of_the_problem(
    records: Records, tiny_vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Upper, "decode_hparams", DecodeHParams(beam_size=21, alpha=0.3))
    search = dev_decoder(tiny_vocabulary, records, 1).translator.decode_hparams
    assert search == DecodeHParams(beam_size=EVAL_BEAM, alpha=0.3)


def test_sources_are_decoded_with_their_own_vocabulary(
    tmp_path: Path, tiny_vocabulary: Vocabulary
) -> None:
    letters = ByteVocabulary()
    [source] = letters.encode(["a dog"])
    [target] = tiny_vocabulary.encode(["the cat"])
    dev = written(tmp_path, [(source, target)])
    [sample] = dev_decoder(tiny_vocabulary.with_sources(letters), dev, 1)().samples
    assert sample[:2] == ("a dog", "A DOG|THE CAT")


def test_each_corpus_has_its_own_loss(model: Any, tmp_path: Path) -> None:
    whole = written(tmp_path, [*PAIRS, *PAIRS[:1]])
    ranges = (
        StoredCorpus("x", stop=1),
        StoredCorpus("y", start=1, stop=4),
        StoredCorpus("z", start=4, stop=5),
    )
    records = Records(whole.paths, corpora=ranges)
    result = Evaluator(model, records, 1000)()
    for name, pairs in (("x", PAIRS[:1]), ("y", PAIRS[1:]), ("z", PAIRS[:1])):
        (tmp_path / name).mkdir()
        alone = Evaluator(model, written(tmp_path / name, pairs), 1000)()
        assert result.corpora[name].loss == pytest.approx(alone.loss, rel=1e-5)
        assert result.corpora[name].accuracy == alone.accuracy
        if name == "y":  # the largest corpus
            assert result.source_use == pytest.approx(alone.source_use)
    assert result.loss == pytest.approx(mean_loss(model, [*PAIRS, *PAIRS[:1]]), rel=1e-5)
    assert not Evaluator(model, whole, 1000)().corpora
    # A corpus without an evaluated batch has no result.
    assert len(Evaluator(model, records, 8, max_batches=1)().corpora) == 1


def test_lines_of_each_corpus_are_scored_by_the_rules_of_its_language(tmp_path: Path) -> None:
    vocabulary = sentencepiece.train(["the cat sat on a dog"], 292, [">>en<<", ">>zh<<"])
    chinese = [
        ("我爱北京天安门", "我爱北京天安门上"),
        ("太阳升起来了", "太阳升起来"),
        ("我爱", "我"),
    ]
    texts = [(f">>en<< {source}", target) for source, target in TEXTS]
    texts += [(f">>zh<< {source}", target) for source, target in chinese]
    sources, targets = zip(*texts, strict=True)
    pairs = list(zip(vocabulary.encode_sources(sources), vocabulary.encode(targets), strict=True))
    ranges = (StoredCorpus("x.en", 0.0, "en", 0, 7), StoredCorpus("x.zh", 0.0, "zh", 7, 10))
    dev = Records(written(tmp_path, pairs).paths, corpora=ranges)
    decoded = dev_decoder(vocabulary, dev, 3)()
    assert [part.lines for part in decoded.corpora.values()] == [3, 3] and decoded.lines == 6
    assert [source[:6] for source, *_ in decoded.samples] == [">>en<<", ">>zh<<"] * 2 + [">>en<<"]
    for part, tokenize in zip(decoded.corpora.values(), ("13a", "zh"), strict=True):
        assert part
        _, references, outputs = zip(*part.samples, strict=True)
        score = sacrebleu.corpus_bleu(outputs, [references], tokenize=tokenize).score
        assert part.scores[0].score == pytest.approx(score) and 0 < score < 100
    # The names in the logs.
    evaluation = Evaluator(Copier(300), dev, 1000, decoder=dev_decoder(vocabulary, dev, 3))()
    Logs(tmp_path, 0, 1).evaluation(7, evaluation)
    [line] = read_metrics(tmp_path)
    for part, name in zip(decoded.corpora.values(), ("x.en", "x.zh"), strict=True):
        assert part and line[f"dev_bleu/{name}"] == pytest.approx(part.scores[0].score)
        assert line[f"dev_loss/{name}"] == pytest.approx(evaluation.corpora[name].loss)
        assert f"{name}: dev loss {line[f'dev_loss/{name}']:.4f}" in evaluation.describe(False)


def test_an_evaluation_can_be_interrupted_between_two_batches(
    tmp_path: Path, tiny_vocabulary: Vocabulary
) -> None:
    texts = [(f"dog {number} sat on", f"cat {number} sat on") for number in range(40)]
    dev = written(tmp_path, encoded(tiny_vocabulary, texts))

    def knows_nothing(inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        return tf.zeros(tf.concat([tf.shape(targets), [tiny_vocabulary.size]], 0))

    for evaluate in (
        Evaluator(knows_nothing, dev, max_tokens=60),
        dev_decoder(tiny_vocabulary, dev, 40),
    ):
        should_stop = mock.Mock(side_effect=[False, False, True])
        with pytest.raises(Stopped):
            evaluate(should_stop)


@pytest.mark.parametrize(("size", "count"), [(1, 50), (7, 2), (7, 8), (1014, 1), (1014, 50)])
def test_lines_are_spread_evenly_and_every_run_has_the_same(size: int, count: int) -> None:
    numbers = spread(size, count)
    count = min(size, count)
    assert len(numbers) == count
    assert all(one < other for one, other in itertools.pairwise([-1, *numbers, size]))
    # The number of sampled lines among the first `stop` lines is proportional to `stop`, to within
    # 1.
    for stop in range(size + 1):
        assert abs(sum(number < stop for number in numbers) - count * stop / size) <= 1
    assert spread(1000, 8) == [108, 174, 347, 488, 553, 630, 783, 998]
