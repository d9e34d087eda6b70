"""Text in, text out: as many lines, in their order, whatever is decoded together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from models import Copier
from t2t_repro.data.vocabulary import EOS_ID, Vocabulary
from t2t_repro.decoding.search import generate_outputs
from t2t_repro.decoding.translator import EMPTY, PairScore, Translation, Translator, batches, padded
from t2t_repro.errors import UserError
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


def test_a_batch_that_takes_too_much_memory_is_halved(talker: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"beam_size": 3, "details": True}
    expected = talker.translate(TEXTS, **options), talker.score(TEXTS, TEXTS)
    sizes, room = set(), 2
    search, score = Translator._search, Translator._score

    def searched(self: Translator, params: DecodeHParams, given: dict[str, np.ndarray]) -> Any:
        sizes.add(len(given["inputs"]))
        if len(given["inputs"]) > room:
            raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")
        return search(self, params, given)

    def scored(self: Translator, sources: list[list[int]], targets: list[list[int]]) -> list[PairScore]:
        if len(sources) > room:
            raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")
        return score(self, sources, targets)

    monkeypatch.setattr(Translator, "_search", searched)
    monkeypatch.setattr(Translator, "_score", scored)
    found = talker.translate(TEXTS, **options), talker.score(TEXTS, TEXTS)
    assert max(sizes) > 2 and 1 in sizes
    for one, other in zip(found[0], expected[0], strict=True):
        assert [each.text for each in one.hypotheses] == [each.text for each in other.hypotheses]
        np.testing.assert_allclose(one.score, other.score, atol=1e-5)
    for pair, same in zip(found[1], expected[1], strict=True):
        np.testing.assert_allclose(pair.token_scores, same.token_scores, atol=1e-5)
    room = 0
    with pytest.raises(UserError, match=r"one text of \d+ tokens alone takes more memory than there is"):
        talker.translate(TEXTS, **options)


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
    found = generate_outputs(ours.model, ours.decode_hparams, padded(sources)).ids[:, 0].numpy()
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
    best = generate_outputs(transformer, ours.decode_hparams, source)
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


@pytest.fixture(scope="module")
def talker(new_speaker: Callable[..., Transformer], tiny_vocabulary: Vocabulary) -> Translator:
    """Its graphs are made once for all tests."""
    return Translator(new_speaker(3), tiny_vocabulary, DecodeHParams(n=3, extra_length=3), max_length=50)


@pytest.fixture(scope="module")
def echo(tiny_vocabulary: Vocabulary) -> Translator:
    return Translator(Copier(tiny_vocabulary.size), tiny_vocabulary, DecodeHParams(), max_length=12)


DRAWN: dict[str, Any] = {"sampling_method": "random", "sampling_temp": 1.5}


def penalty(length: int) -> float:
    return ((5 + length) / 6) ** 0.6


def alike(ours: Translation, theirs: Translation) -> None:
    """The same but for rounding."""
    assert [each.ids for each in ours.hypotheses] == [each.ids for each in theirs.hypotheses]
    assert [each.text for each in ours.hypotheses] == [each.text for each in theirs.hypotheses]
    for one, other in zip(ours.hypotheses, theirs.hypotheses, strict=True):
        assert (one.score, *one.token_scores) == pytest.approx((other.score, *other.token_scores), rel=1e-4, abs=1e-5)
        assert one.attention == other.attention
    assert (ours.source_ids, ours.pieces, ours.is_truncated) == (theirs.source_ids, theirs.pieces, theirs.is_truncated)


@pytest.mark.parametrize("options", [{}, DRAWN], ids=["best", "drawn"])
def test_each_of_n_outputs_has_what_belongs_to_it(
    talker: Translator, tiny_vocabulary: Vocabulary, options: dict[str, Any]
) -> None:
    lengths = set()
    for text, found in zip(TEXTS, talker.translate(TEXTS, details=True, **options), strict=True):
        if not text.strip():
            assert found == EMPTY
            continue
        assert found.source_ids == tuple(tiny_vocabulary.encode([text])[0])
        assert len(found.hypotheses) == 3 and (found.pieces, found.is_truncated) == (1, False)
        assert len({each.ids for each in found.hypotheses}) > 1
        assert (found.text, found.score) == (found.hypotheses[0].text, found.hypotheses[0].score)
        order = [(each.ids[-1] == EOS_ID, each.score) for each in found.hypotheses]
        # The best first; of draws those with an end.
        assert options or order == sorted(order, reverse=True)
        assert [ended for ended, _ in order] == sorted((ended for ended, _ in order), reverse=True)
        for each in found.hypotheses:
            assert [each.text] == tiny_vocabulary.decode([each.ids])
            assert sum(each.token_scores) / penalty(len(each.ids)) == pytest.approx(each.score, rel=1e-5)
            assert len(each.ids) == len(each.token_scores) == len(each.attention)
            assert EOS_ID not in each.ids[:-1]
            assert all(0 <= place < len(found.source_ids) for place in each.attention)
            lengths.add(len(each.ids))
    assert len(lengths) > 3


@pytest.mark.parametrize("options", [{}, DRAWN], ids=["best", "drawn"])
def test_n_outputs_are_the_same_whatever_is_decoded_together(talker: Translator, options: dict[str, Any]) -> None:
    expected = talker.translate(TEXTS, **options)
    assert len({each.text for each in expected}) > 4
    for batch_size in (1, 30):
        for ours, theirs in zip(talker.translate(TEXTS, batch_size=batch_size, **options), expected, strict=True):
            alike(ours, theirs)
    order = [7, 2, 0, 5, 8, 1]
    others = talker.stream([TEXTS[line] for line in order], numbers=order, batch_size=25, **options)
    for place, translation in others:
        alike(translation, expected[order[place]])


def test_seed_line_and_piece_decide_what_is_drawn(talker: Translator) -> None:
    texts_ = ["a cat sat"] * 3
    draws = talker.translate(texts_, **DRAWN)
    assert talker.translate(texts_, **DRAWN) == draws
    assert len({each.ids for translation in draws for each in translation.hypotheses}) > 6
    others = talker.translate(texts_, sampling_seed=1, **DRAWN)
    assert all(one.hypotheses != other.hypotheses for one, other in zip(draws, others, strict=True))
    # The same line in other company, and the same text as the second piece of that line.
    [(_, alone)] = talker.stream(texts_[:1], numbers=[2], **DRAWN)
    alike(alone, draws[2])
    [(_, split)] = talker.stream(["a cat sat. a cat sat."], numbers=[2], max_input_size=5, **DRAWN)
    [(_, single)] = talker.stream(["a cat sat."], numbers=[2], **DRAWN)
    assert split.pieces == 2
    for both, one in zip(split.hypotheses, single.hypotheses, strict=True):
        assert both.ids[: len(one.ids)] == one.ids and both.ids[len(one.ids) :] != one.ids


SENTENCES = ["the dog sat on a cat. ", "cat. ", "a dog on the cat."]


def test_a_text_in_pieces_is_its_pieces_put_together(talker: Translator, tiny_vocabulary: Vocabulary) -> None:
    longest = len(tiny_vocabulary.encode([SENTENCES[0].strip()])[0])
    found = talker.translate(["cat", "".join(SENTENCES)], details=True, max_input_size=longest)[1]
    parts = talker.translate([text.strip() for text in SENTENCES], details=True)
    assert found.pieces == 3 and len(found.hypotheses) == 3
    assert found.source_ids == sum((part.source_ids for part in parts), ())
    offsets = [0, len(parts[0].source_ids), len(parts[0].source_ids) + len(parts[1].source_ids)]
    for rank, each in enumerate(found.hypotheses):
        own = [part.hypotheses[rank] for part in parts]
        assert each.text == " ".join(one.text for one in own)
        assert each.ids == sum((one.ids for one in own), ())
        assert each.score == pytest.approx(sum(one.score for one in own), rel=1e-4)
        assert each.token_scores == pytest.approx([score for one in own for score in one.token_scores], rel=1e-4)
        places = [place + offset for one, offset in zip(own, offsets, strict=True) for place in one.attention]
        assert list(each.attention) == places


def test_long_lines_are_split_truncated_or_refused(echo: Translator, tiny_vocabulary: Vocabulary) -> None:
    long = "the cat sat on the dog. a dog sat on a cat. the dog"
    [ids] = tiny_vocabulary.encode([long])
    fits = tiny_vocabulary.decode([ids[:11]])[0]
    assert len(ids) > 12 == len(tiny_vocabulary.encode([fits])[0])
    given = ["a dog", long, fits]
    split, cut = echo.translate(given), echo.translate(given, long_lines="truncate")
    assert texts(split) == given
    assert [each.pieces for each in split] == [1, 2, 1]
    assert texts(cut) == ["a dog", fits, fits]
    assert [each.is_truncated for each in cut] == [False, True, False]
    assert cut[1].source_ids == (*ids[:11], EOS_ID) and cut[1].pieces == 1
    with pytest.raises(UserError) as error:
        list(echo.stream(given, long_lines="error", numbers=[40, 50, 60], source="x.en"))
    assert str(error.value).startswith(f"x.en:51: {len(ids)} tokens, more than 12;")
    # What decode_hparams say goes before what the model was trained on.
    assert echo.translate(given, long_lines="error", max_input_size=len(ids))[1].pieces == 1
    assert echo.translate(given, max_input_size=4)[1].pieces > 5


@pytest.mark.parametrize("longest", [2, 3, 4, 5, 8])
def test_pieces_are_joined_with_the_spaces_they_had(echo: Translator, longest: int) -> None:
    texts_ = ["the dog. a cat sat on the dog", "Ω 漢 Ω", "a", "  the   dog  ", "catdogthecat 漢字"]
    found = texts(echo.translate(texts_, max_input_size=longest))
    assert [" ".join(text.split()) for text in found] == [" ".join(text.split()) for text in texts_]


@pytest.mark.parametrize("options", [{}, DRAWN], ids=["best", "drawn"])
def test_outputs_begin_with_their_prefixes(talker: Translator, options: dict[str, Any]) -> None:
    given = ["the dog", "", "a cat", "".join(SENTENCES), "cat"]
    prefixes = ["the the cat", "a dog", "", "a cat sat on", "Ω"]
    found = talker.translate(given, prefixes, max_input_size=11, details=True, **options)
    free = talker.translate(given, max_input_size=11, details=True, **options)
    assert found[1] == EMPTY
    alike(found[2], free[2])
    for number in (0, 3, 4):
        assert len(found[number].hypotheses) == 3
        assert all(each.text.startswith(prefixes[number]) for each in found[number].hypotheses)
        assert not all(each.text.startswith(prefixes[number]) for each in free[number].hypotheses)
    # Of a text in pieces the first alone has the prefix.
    assert found[3].pieces == free[3].pieces > 1
    if not options:
        for forced, other in zip(found[3].hypotheses, free[3].hypotheses, strict=True):
            rest = other.ids[other.ids.index(EOS_ID) + 1 :]
            assert forced.ids[-len(rest) :] == rest
    # A prefix is part of the score.
    first = found[0].hypotheses[0]
    assert sum(first.token_scores) / penalty(len(first.ids)) == pytest.approx(first.score, rel=1e-5)


def test_a_prefix_holds_even_where_it_repeats_what_is_forbidden(tiny_vocabulary: Vocabulary, echo: Translator) -> None:
    [found] = echo.translate(["a"], ["cat cat cat"], repeat_ngram_size=1, repeat_ngram_penalty=float("inf"))
    assert found.text.startswith("cat cat cat")


def test_every_line_comes_once_however_it_is_cut(echo: Translator) -> None:
    given = [*TEXTS, "the cat sat on the dog. " * 4]
    for batch_size in (1, 60):
        found = list(echo.stream(given, batch_size=batch_size, max_input_size=6))
        assert sorted(number for number, _ in found) == list(range(len(given)))
        assert dict(found)[9].pieces > 3


def test_each_call_decodes_in_its_own_way(tiny_vocabulary: Vocabulary) -> None:
    ours = copier(tiny_vocabulary)
    hot: dict[str, Any] = {"sampling_method": "random", "sampling_temp": 40.0}
    [one], [two] = ours.translate(["the dog"]), ours.translate(["the dog"], n=2)
    assert (len(one.hypotheses), len(two.hypotheses)) == (1, 2)
    assert one.text == two.text == "the dog"
    # What is drawn at random is hardly ever the input; the likeliest token always is.
    assert texts(ours.translate(["the dog"], **hot)) != ["the dog"]
    assert texts(ours.translate(["the dog"], sampling_keep_top_k=1, **hot)) == ["the dog"]
    assert texts(ours.translate(["the dog"], sampling_method="random")) == ["the dog"]
    [short] = ours.translate(["the dog"], extra_length=0, **hot)
    assert len(short.hypotheses[0].ids) <= 3
    assert ours.decode_hparams == DecodeHParams()


def test_a_given_pairs_score_is_that_of_the_output(talker: Translator, tiny_vocabulary: Vocabulary) -> None:
    pairs = [
        (text, each)
        for text, translation in zip(TEXTS, talker.translate(TEXTS, details=True), strict=True)
        for each in translation.hypotheses
        if each.ids and tiny_vocabulary.encode([each.text]) == [list(each.ids)]
    ]
    assert len(pairs) > 8
    counts: list[int] = []
    scores = talker.score([text for text, _ in pairs], [each.text for _, each in pairs], counts.append)
    assert sum(counts) == len(pairs)
    for score, (_, each) in zip(scores, pairs, strict=True):
        assert score.token_scores == pytest.approx(each.token_scores, rel=1e-4, abs=1e-5)
        assert score.attention == each.attention
        assert score.log_prob / penalty(len(each.ids)) == pytest.approx(each.score, rel=1e-4)
        assert score.mean == pytest.approx(score.log_prob / len(each.ids))


def test_empty_sources_and_targets_have_scores_too(talker: Translator) -> None:
    sources, targets = ["", "the dog", "", "cat"], ["", "", "a cat", "dog"]
    found = talker.score(sources, targets)
    assert [len(each.token_scores) for each in found] == [1, 1, 3, 2]
    assert all(score < 0 for each in found for score in each.token_scores)
    assert found[0].log_prob != found[1].log_prob
    for number, each in enumerate(found):
        [alone] = talker.score(sources[number : number + 1], targets[number : number + 1])
        assert alone.token_scores == pytest.approx(each.token_scores, rel=1e-4)
    assert talker.score([], []) == []
    assert PairScore((-1.0, -2.0), (0, 0)).mean == -1.5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"beam_sise": 3}, ("'beam_sise'", "'beam_size'")),
        ({"beam_size": 291}, ("beam_size=291", "290")),
        ({"n": 5}, ("n=5", "beam_size=4")),
        ({"prefixes": ["a"]}, ("1 prefixes", "2 texts")),
        ({"long_lines": "cut"}, ("long_lines", "'cut'")),
        ({"prefix_file": "x"}, ("prefix_file=x",)),
        ({"write_beam_scores": True}, ("write_beam_scores=True",)),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(echo: Translator, options: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(UserError) as error:
        echo.translate(["the dog", "a"], **options)
    assert all(word in str(error.value) for word in words) and "\n" not in str(error.value)
