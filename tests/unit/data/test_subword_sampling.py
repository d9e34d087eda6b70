"""Tests that sampled pieces have the right probabilities, spell the text, and depend on example,
epoch and seed.
"""

import io
import itertools
import math
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sentencepiece

from shards import write_shards
from t2t_repro.data.pipeline import Pipeline
from t2t_repro.data.records import Records
from t2t_repro.data.vocabularies.sentencepiece import SentencePieceVocabulary
from t2t_repro.data.vocabularies.tensor2tensor import ByteVocabulary
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.hparam import HParams
from user_errors import user_error

SYLLABLES = ("lo", "wer", "est", "new", "wi", "de", "sl", "ow")
DRAW = Random(1)
TEXTS = 2 * [
    " ".join(
        "".join(DRAW.choices(SYLLABLES, k=DRAW.randint(1, 3))) for _ in range(DRAW.randint(1, 5))
    )
    for _ in range(75)
]
ALPHA = 0.3


def trained(kind: str, size: int = 320) -> SentencePieceVocabulary:
    """Returns a vocabulary that was learned from `TEXTS`, with a tag, and pieces of a kind."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(TEXTS),
        model_writer=model,
        model_type=kind,
        vocab_size=size,
        hard_vocab_limit=False,
        byte_fallback=kind in ("bpe", "unigram"),
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        user_defined_symbols=[">>de<<"],
        minloglevel=2,
    )
    return SentencePieceVocabulary(model.getvalue(), f"{kind}.model")


VOCABULARIES = {kind: trained(kind) for kind in ("bpe", "unigram")}
PIECES = {
    kind: {
        piece: number
        for number, piece in enumerate(vocabulary.pieces(range(vocabulary.size)))
        if number > 2
    }
    for kind, vocabulary in VOCABULARIES.items()
}


def segmentations(text: str, kind: str) -> dict[tuple[str, ...], float]:
    """Returns all ways to split a text into pieces of a unigram model, each with its probability
    before scaling.
    """
    model = sentencepiece.SentencePieceProcessor(model_proto=VOCABULARIES[kind].model)
    splits = {}
    for places in itertools.product((False, True), repeat=len(text) - 1):
        bounds = [0, *itertools.compress(range(1, len(text)), places), len(text)]
        split = tuple(text[start:stop] for start, stop in itertools.pairwise(bounds))
        if all(piece in PIECES[kind] for piece in split):
            splits[split] = math.exp(
                ALPHA * sum(model.GetScore(PIECES[kind][piece]) for piece in split)
            )
    return splits


def merges(text: str) -> dict[tuple[str, ...], float]:
    """Returns all results of BPE-dropout, each with its probability.

    The next merge is the one that was learned first, if it occurs twice the left one. It is skipped
    with probability `ALPHA`, and then only tried again after one of its two pieces has changed.
    """
    results = Counter[tuple[str, ...]]()
    ranks = {piece: rank for piece, rank in PIECES["bpe"].items() if len(piece) > 1}

    def follow(
        bounds: tuple[int, ...], skipped: frozenset[tuple[int, ...]], probability: float
    ) -> None:
        triples = zip(bounds, bounds[1:], bounds[2:], strict=False)
        open_triples = [
            triple
            for triple in triples
            if text[triple[0] : triple[2]] in ranks and triple not in skipped
        ]
        if not open_triples:
            results[tuple(text[start:stop] for start, stop in itertools.pairwise(bounds))] += (
                probability
            )
            return
        chosen = min(open_triples, key=lambda triple: (ranks[text[triple[0] : triple[2]]], triple))
        follow(bounds, skipped | {chosen}, probability * ALPHA)
        follow(
            tuple(bound for bound in bounds if bound != chosen[1]),
            skipped,
            probability * (1 - ALPHA),
        )

    follow(tuple(range(len(text) + 1)), frozenset(), 1.0)
    return results


@pytest.mark.parametrize(("kind", "nbest_size"), [("bpe", -1), ("unigram", -1), ("unigram", 3)])
def test_pieces_have_the_probabilities_that_an_enumeration_gives(
    kind: str, nbest_size: int
) -> None:
    vocabulary = VOCABULARIES[kind]
    draws = 4000
    generator = Random(1)
    sample = vocabulary.sampler(ALPHA, nbest_size)
    [row] = vocabulary.encode(["lowernew"])
    counts = Counter(tuple(vocabulary.pieces(sample(row, generator)[:-1])) for _ in range(draws))
    weights = merges("▁lowernew") if kind == "bpe" else segmentations("▁lowernew", kind)
    weights = dict(
        sorted(weights.items(), key=lambda item: -item[1])[: nbest_size if nbest_size > 0 else None]
    )
    assert len(weights) >= 3 and counts.keys() <= weights.keys()
    for split, weight in weights.items():
        probability = weight / sum(weights.values())
        deviation = math.sqrt(draws * probability * (1 - probability))
        assert abs(counts[split] - draws * probability) < 4 * deviation + 1, split


@pytest.mark.parametrize("kind", VOCABULARIES)
def test_without_chance_the_pieces_are_those_of_sentencepiece(kind: str) -> None:
    vocabulary = VOCABULARIES[kind]
    sample = vocabulary.sampler(1e-9, -1) if kind == "bpe" else vocabulary.sampler(0.9, 2)
    rows = vocabulary.encode([*TEXTS, "", "  slow  est ", "wi漢 lo\u2581w!"])
    drawn = [sample(row, Random(1)) for row in rows]
    if kind == "bpe":
        assert drawn == rows
    assert vocabulary.decode(drawn) == vocabulary.decode(rows)


RECORDED = {
    ("bpe", -1): "▁ s low es t ▁ n ew er | ▁wi d er",
    ("unigram", -1): "▁sl ow est ▁new e r | ▁wi de r",
    ("unigram", 3): "▁sl ow est ▁new e r | ▁wi de r",
}


@pytest.mark.parametrize(("kind", "nbest_size"), RECORDED)
def test_a_seed_gives_the_recorded_pieces(kind: str, nbest_size: int) -> None:
    """With other pieces, the training of an existing model folder could not be resumed."""
    vocabulary = VOCABULARIES[kind]
    generator = Random("1 0 7")
    sample = vocabulary.sampler(ALPHA, nbest_size)
    texts = [sample(row, generator) for row in vocabulary.encode(["slowest newer", "wider"])]
    assert (
        " | ".join(" ".join(vocabulary.pieces(text[:-1])) for text in texts)
        == RECORDED[kind, nbest_size]
    )


def test_tags_and_the_unknown_piece_stay() -> None:
    vocabulary = VOCABULARIES["bpe"]
    sample = vocabulary.sampler(0.5, -1)
    [row] = vocabulary.encode(["slowest"])
    [tagged] = vocabulary.encode_sources([">>de<< slowest"])
    for seed in range(20):
        assert sample(tagged, Random(seed)) == [tagged[0], *sample(row, Random(seed))]
        assert sample([2, *row], Random(seed)) == [2, *sample(row, Random(seed))]


@pytest.mark.parametrize(
    ("vocabulary", "nbest_size", "words"),
    [
        (ByteVocabulary(), -1, ["subword_alpha"]),
        (trained("word"), -1, ["word.model", "subword_alpha"]),
        (VOCABULARIES["bpe"], 64, ["bpe.model", "subword_nbest_size=64"]),
        (None, -1, ["subword_alpha"]),
    ],
)
def test_a_vocabulary_that_cannot_sample_is_refused(
    tmp_path: Path, vocabulary: Vocabulary | None, nbest_size: int, words: list[str]
) -> None:
    records = Records(write_shards(tmp_path, [([5, 1], [6, 1])]))
    hparams = HParams(subword_alpha=0.1, subword_nbest_size=nbest_size)
    message = user_error(Pipeline, records, hparams, 1, 60, 1, vocabulary)
    assert all(word in message for word in words)


def rows(batches: Any) -> dict[tuple[int, int], tuple[list[int], list[int]]]:
    """Returns the source ids and target ids of each example in each step, without padding, and
    checks the counts.
    """
    pairs = {}
    for batch in batches:
        sides = [0, 0]
        for micro_batch in batch.micro_batches:
            for inputs, targets, number in zip(*micro_batch, strict=True):
                pair = inputs[inputs > 0].tolist(), targets[targets > 0].tolist()
                pairs[batch.step, int(number)] = pair
                sides = [total + len(side) for total, side in zip(sides, pair, strict=True)]
        assert sides == [batch.source_tokens, batch.target_tokens]
    return pairs


@pytest.mark.parametrize("sources", VOCABULARIES)
def test_an_epoch_has_new_pieces_on_any_devices_and_from_any_start(
    tmp_path: Path, sources: str
) -> None:
    vocabulary = VOCABULARIES["bpe"].with_sources(VOCABULARIES[sources])
    pairs = list(
        zip(vocabulary.encode_sources(TEXTS), vocabulary.encode_targets(TEXTS[::-1]), strict=True)
    )
    longest = max(len(side) for pair in pairs for side in pair)
    records = Records(write_shards(tmp_path, pairs))

    def batches(
        start: int, stop: int, alpha: float, seed: int = 1, max_tokens: int = 60, replicas: int = 1
    ) -> Any:
        hparams = HParams(batch_size=200, max_length=longest, subword_alpha=alpha)
        return Pipeline(records, hparams, seed, max_tokens, replicas, vocabulary).batches(
            start, stop
        )

    steps = Pipeline(records, HParams(batch_size=200), 1, 60, 1).steps_per_epoch
    unbroken = rows(batches(0, 2 * steps, ALPHA))
    plain = rows(batches(0, 2 * steps, 0.0))
    assert unbroken.keys() == plain.keys()
    for (_, number), (source, target) in unbroken.items():
        texts = vocabulary.sources.decode([source]) + vocabulary.decode([target])
        assert texts == [TEXTS[number], TEXTS[::-1][number]]
        assert max(len(source), len(target)) <= longest
    for start, options in (
        (0, {"replicas": 2}),
        (3, {"max_tokens": 100, "replicas": 4}),
        (steps + 1, {}),
    ):
        expected = {key: pair for key, pair in unbroken.items() if key[0] >= start}
        assert rows(batches(start, 2 * steps, ALPHA, **options)) == expected
    for batch in batches(0, steps, ALPHA):
        for inputs, targets, examples in batch.micro_batches:
            assert len(examples) <= 1 or max(inputs.size, targets.size) <= 60

    other_seed = rows(batches(0, steps, ALPHA, seed=2))
    epochs = [
        {number: pair for (step, number), pair in drawn.items() if step // steps == epoch}
        for drawn, epoch in ((unbroken, 0), (unbroken, 1), (other_seed, 0), (plain, 0))
    ]
    for one, other in itertools.combinations(epochs, 2):
        assert sum(one[number] != other[number] for number in one) > len(pairs) / 2
    half = len(pairs) // 2  # examples `number` and `number + half` have the same text
    assert sum(epochs[0][number] != epochs[0][number + half] for number in range(half)) > half / 2
