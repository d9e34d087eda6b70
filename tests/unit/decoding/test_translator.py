"""Tests the translator: it returns one translation per text, in order, independent of the other
texts in the batch.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import pytest

from models import Copier, weights_of, write_checkpoint
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.data.vocabularies.text_rules import EOS_ID
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding.tensorflow_engine import TransposedSoftmax
from t2t_repro.decoding.translation import EMPTY, InputFile, Translation
from t2t_repro.decoding.translator import Translator
from t2t_repro.hparam import DecodeHParams, HParams
from t2t_repro.models import variants
from user_errors import user_error

TEXTS = [
    "the dog",
    "",
    "a cat sat on the dog",
    " ",
    "cat",
    "Ω 漢",
    "\t",
    "the cat sat on the dog and the cat",
    "a",
]
SENTENCES = ["the dog sat on a cat. ", "cat. ", "a dog on the cat."]
RANDOM: dict[str, Any] = {"sampling_method": "random", "sampling_temp": 1.5}


@pytest.fixture(scope="module")
def transformer(tiny_hparams: HParams, tiny_vocabulary: Vocabulary) -> Any:
    keras.utils.set_random_seed(1)
    return variants.transformer(tiny_hparams, tiny_vocabulary.size)


@pytest.fixture(scope="module")
def word_translator(new_word_model: Callable[..., Any], tiny_vocabulary: Vocabulary) -> Translator:
    """Returns a translator whose outputs are words. All tests share it, because its graphs are slow
    to build.
    """
    return Translator(
        new_word_model(3), tiny_vocabulary, DecodeHParams(n=3, extra_length=3), max_length=50
    )


@pytest.fixture(scope="module")
def copier(tiny_vocabulary: Vocabulary) -> Translator:
    """Returns a translator whose outputs equal its inputs. All tests share it, because its graphs
    are slow to build.
    """
    return Translator(
        Copier(tiny_vocabulary.size), tiny_vocabulary, DecodeHParams(), max_length=400
    )


def texts_of(translations: list[Translation]) -> list[str]:
    return [translation.text for translation in translations]


def penalty(length: int) -> float:
    return ((5 + length) / 6) ** 0.6


def assert_alike(ours: Translation, theirs: Translation) -> None:
    """Asserts that two translations are equal except for rounding."""
    for our, their in zip(ours.hypotheses, theirs.hypotheses, strict=True):
        assert our.text == their.text
        assert our.ids == their.ids
        assert our.score == pytest.approx(their.score, abs=1e-5)
        assert our.token_scores == pytest.approx(their.token_scores, abs=1e-5)
        assert our.attention == their.attention
    assert dataclasses.replace(ours, hypotheses=()) == dataclasses.replace(theirs, hypotheses=())


@pytest.mark.usefixtures("no_graphs")
def test_a_translator_comes_from_a_model_folder(folder: ModelFolder, transformer: Any) -> None:
    write_checkpoint(folder.path, 3, weights_of(transformer), folder.vocabulary.fingerprint)
    translator = Translator.from_dir(str(folder.path), beam_size=2, extra_length=3)
    assert translator.decode_hparams == DecodeHParams(beam_size=2, extra_length=3)
    expected = Translator(transformer, folder.vocabulary, translator.decode_hparams)
    # The translator has another order of the weights, for faster logits, whose last bits differ.
    assert isinstance(translator.model.softmax, TransposedSoftmax)
    [ours] = translator.translate(iter(["the cat"]))
    [theirs] = expected.translate(["the cat"])
    assert_alike(ours, theirs)


@pytest.mark.parametrize("options", [{}, RANDOM], ids=["best", "random"])
def test_each_hypothesis_has_its_text_score_and_details(
    word_translator: Translator, tiny_vocabulary: Vocabulary, options: dict[str, Any]
) -> None:
    for text, translation in zip(
        TEXTS, word_translator.translate(TEXTS, details=True, **options), strict=True
    ):
        if not text.strip():
            assert translation == EMPTY
            continue
        hypotheses = translation.hypotheses
        assert translation.source_ids == tuple(tiny_vocabulary.encode([text])[0])
        assert len(hypotheses) == 3 and translation.segments == 1 and not translation.is_truncated
        assert len({hypothesis.ids for hypothesis in hypotheses}) > 1
        assert (translation.text, translation.score) == (hypotheses[0].text, hypotheses[0].score)
        for hypothesis in hypotheses:
            assert [hypothesis.text] == tiny_vocabulary.decode([hypothesis.ids])
            total = sum(hypothesis.token_scores)
            assert total / penalty(len(hypothesis.ids)) == pytest.approx(hypothesis.score, rel=1e-5)
            assert len(hypothesis.ids) == len(hypothesis.token_scores) == len(hypothesis.attention)
            assert EOS_ID not in hypothesis.ids[:-1]
            # Other subwords than the tokenizer's would have another score.
            if tiny_vocabulary.encode([hypothesis.text]) == [list(hypothesis.ids)]:
                [score] = word_translator.score([text], [f"\t {hypothesis.text} \u3000"])
                assert score.token_scores == pytest.approx(hypothesis.token_scores, abs=1e-5)
                assert score.attention == hypothesis.attention
                mean = total / len(hypothesis.ids)
                assert (score.log_prob, score.mean) == pytest.approx((total, mean), rel=1e-5)


@pytest.mark.parametrize("options", [{}, RANDOM], ids=["best", "random"])
def test_outputs_do_not_depend_on_the_batch(
    word_translator: Translator, options: dict[str, Any]
) -> None:
    expected = word_translator.translate(TEXTS, **options)
    assert len({translation.text for translation in expected}) > 4
    for batch_size in (1, 30):
        counts: list[int] = []
        translations = word_translator.translate(
            TEXTS, batch_size=batch_size, advance=counts.append, **options
        )
        assert sum(counts) == len(TEXTS)
        for ours, theirs in zip(translations, expected, strict=True):
            assert_alike(ours, theirs)
    order = [7, 2, 0, 5, 8, 1]
    stream = word_translator.stream(
        [TEXTS[line] for line in order],
        input_file=InputFile(line_numbers=order),
        batch_size=25,
        **options,
    )
    for index, translation in stream:
        assert_alike(translation, expected[order[index]])


def test_random_outputs_depend_on_seed_line_and_segment(word_translator: Translator) -> None:
    def drawn(text: str, line: int = 2, **options: Any) -> Translation:
        [(_, translation)] = word_translator.stream(
            [text], input_file=InputFile(line_numbers=[line]), **RANDOM, **options
        )
        return translation

    translations = word_translator.translate(["a cat sat."] * 3, **RANDOM)
    drawn_ids = {hypothesis.ids for each in translations for hypothesis in each.hypotheses}
    assert len(drawn_ids) > 6
    # In its own batch, the line with number 2 has the same outputs as in the batch above.
    assert_alike(drawn("a cat sat."), translations[2])
    assert drawn("a cat sat.", sampling_seed=1).hypotheses != translations[2].hypotheses
    # If a line is split into two equal segments, their outputs differ.
    split = drawn("a cat sat. a cat sat.", max_input_size=5)
    assert split.segments == 2
    for two_segments, one_segment in zip(split.hypotheses, translations[2].hypotheses, strict=True):
        length = len(one_segment.ids)
        assert two_segments.ids[:length] == one_segment.ids
        assert two_segments.ids[length:] != one_segment.ids


def test_a_text_in_segments_has_the_joined_translations_of_its_segments(
    word_translator: Translator, tiny_vocabulary: Vocabulary
) -> None:
    longest = len(tiny_vocabulary.encode([SENTENCES[0].strip()])[0])
    translation = word_translator.translate(
        ["cat", "".join(SENTENCES)], details=True, max_input_size=longest
    )[1]
    parts = word_translator.translate([text.strip() for text in SENTENCES], details=True)
    assert translation.segments == 3
    assert translation.source_ids == sum((part.source_ids for part in parts), ())
    offsets = [0, len(parts[0].source_ids), len(parts[0].source_ids) + len(parts[1].source_ids)]
    for hypothesis, *expected in zip(
        translation.hypotheses, *(part.hypotheses for part in parts), strict=True
    ):
        assert hypothesis.text == " ".join(part.text for part in expected)
        assert hypothesis.ids == sum((part.ids for part in expected), ())
        assert hypothesis.score == pytest.approx(sum(part.score for part in expected), rel=1e-4)
        token_scores = sum((part.token_scores for part in expected), ())
        assert hypothesis.token_scores == pytest.approx(token_scores, rel=1e-4)
        pairs = zip(expected, offsets, strict=True)
        assert list(hypothesis.attention) == [
            place + offset for part, offset in pairs for place in part.attention
        ]


@pytest.mark.usefixtures("no_graphs")
def test_long_lines_are_split_truncated_or_refused(
    copier: Translator, tiny_vocabulary: Vocabulary
) -> None:
    copier = Translator(copier.model, tiny_vocabulary, DecodeHParams(), max_length=12)
    long = "the cat sat on the dog. a dog sat on a cat. the dog"
    [ids] = tiny_vocabulary.encode([long])
    longest_allowed = tiny_vocabulary.decode([ids[:11]])[0]
    assert len(ids) > 12 == len(tiny_vocabulary.encode([longest_allowed])[0])
    texts = ["a dog", long, longest_allowed]
    split = copier.translate(texts)
    truncated = copier.translate(texts, long_lines="truncate")
    assert texts_of(split) == texts
    assert [translation.segments for translation in split] == [1, 3, 1]
    assert texts_of(truncated) == ["a dog", longest_allowed, longest_allowed]
    assert [translation.is_truncated for translation in truncated] == [False, True, False]
    assert truncated[1].source_ids == (*ids[:11], EOS_ID) and truncated[1].segments == 1
    stream = copier.stream(texts, long_lines="error", input_file=InputFile("x.en", [40, 50, 60]))
    assert user_error(list, stream).startswith(f"x.en:51: {len(ids)} tokens are more than 12;")
    assert copier.translate(texts, long_lines="error", max_input_size=len(ids))[1].segments == 1


def test_outputs_begin_with_their_prefixes(word_translator: Translator) -> None:
    sources = ["the dog", "", "a cat", "".join(SENTENCES), "cat"]
    prefixes = ["the the cat", "a dog", "\u200b", "a cat sat on", "Ω"]
    forced = word_translator.translate(sources, prefixes, max_input_size=11, details=True)
    free = word_translator.translate(sources, max_input_size=11, details=True)
    assert forced[1] == EMPTY
    assert_alike(forced[2], free[2])
    for index in (0, 3, 4):
        forced_texts, free_texts = (
            [hypothesis.text for hypothesis in translations[index].hypotheses]
            for translations in (forced, free)
        )
        assert all(text.startswith(prefixes[index]) for text in forced_texts)
        assert not all(text.startswith(prefixes[index]) for text in free_texts)
    # Only the first segment of a text has the prefix.
    assert forced[3].segments == free[3].segments > 1
    for with_prefix, without in zip(forced[3].hypotheses, free[3].hypotheses, strict=True):
        later_segments = without.ids[without.ids.index(EOS_ID) + 1 :]
        assert with_prefix.ids[-len(later_segments) :] == later_segments
    # The score includes the log-probabilities of the prefix's tokens.
    best = forced[0].hypotheses[0]
    assert sum(best.token_scores) / penalty(len(best.ids)) == pytest.approx(best.score, rel=1e-5)


@pytest.mark.usefixtures("no_graphs")
def test_each_call_has_its_own_decode_hparams(copier: Translator) -> None:
    # At temperature 40 a random output almost never equals the input, unless only the likeliest
    # token is allowed.
    hot: dict[str, Any] = {"sampling_method": "random", "sampling_temp": 40.0, "extra_length": 0}
    assert texts_of(copier.translate(["the dog"], **hot)) != ["the dog"]
    assert texts_of(copier.translate(["the dog"], sampling_keep_top_k=1, **hot)) == ["the dog"]
    assert texts_of(copier.translate(["the\ndog"])) == ["the dog"]
    assert copier.decode_hparams == DecodeHParams()
    for call, words in (
        ({"n": 5}, ("n=5", "beam_size=4")),
        ({"long_lines": "cut"}, ("long_lines", "'cut'")),
        ({"texts": "the dog"}, ("texts is one string; give a list: ['the dog']",)),
    ):
        message = user_error(copier.translate, **{"texts": ["the dog", "a"]} | call)
        assert all(word in message for word in words)
    for method in (copier.translate, copier.score):
        with pytest.raises(ValueError, match=r"^1 "):
            method(["the dog", "a"], ["a"])
        for wrong in (b"the dog", [b"the dog"], [None], 5, None, [["the dog"]]):
            with pytest.raises(TypeError, match="str"):
                method(["the dog"], wrong)
