"""Tests that a served graph gives the same texts and scores as the translator."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from disks import largest_file
from models import Copier, word_model
from subwords import small_subwords
from t2t_repro.data.vocabularies.bpe import BpeVocabulary
from t2t_repro.data.vocabularies.huggingface import TokenizerVocabulary
from t2t_repro.data.vocabularies.sentencepiece import train
from t2t_repro.data.vocabularies.tensor2tensor import ByteVocabulary
from t2t_repro.data.vocabularies.text_rules import EOS_ID, PAD_ID
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding.batches import padded, unpadded
from t2t_repro.decoding.tensorflow_engine import transpose_softmax
from t2t_repro.decoding.translator import Translator
from t2t_repro.hparam import DecodeHParams, HParams
from t2t_repro.models import variants
from t2t_repro.serving.export import Served, export
from tokenizers_json import tokenizer_json
from user_errors import user_error

LONG = "the cat sat on the dog the cat sat on the dog"
TAGS = [">>de<<", ">>fr<<"]


def decoded(outputs: Any) -> list[str]:
    return [text.decode() for text in np.asarray(outputs)]


def copying(vocabulary: Vocabulary, *options: Any, **tags: Any) -> Translator:
    """Returns a translator whose best output equals its input."""
    params = DecodeHParams(beam_size=1)
    return Translator(Copier(vocabulary.size), vocabulary, params, *options, **tags)


class Server:
    """A translator and its graph, whose operations run one by one, because TensorFlow builds graphs
    slowly.
    """

    def __init__(self, translator: Translator) -> None:
        self.translator = translator
        self.served = Served(translator)

    def ask(self, signature: str, *texts: Sequence[str | bytes]) -> dict[str, np.ndarray]:
        """Returns the outputs of a signature for one list of texts or, for "score", two, as {name:
        values}.
        """
        tensors = [tf.constant(column, tf.string, [len(column)]) for column in texts]
        results = self.served.functions[signature].python_function(*tensors)
        return {name: value.numpy() for name, value in results.items()}

    def ask_tokens(self, rows: Sequence[Sequence[int]]) -> dict[str, np.ndarray]:
        """Returns the outputs of the signature "tokens" for rows of ids, as {name: values}."""
        ids = tf.constant(rows, tf.int32, [len(rows), len(rows[0]) if rows else 0])
        return {name: value.numpy() for name, value in self.served.translate_tokens(ids).items()}


@pytest.fixture(scope="module")
def copier(tiny_vocabulary: Vocabulary) -> Translator:
    return copying(tiny_vocabulary)


@pytest.fixture(scope="module")
def server(tiny_hparams: HParams, tiny_vocabulary: Vocabulary) -> Server:
    """Returns an untrained Transformer and its graph. Inputs have at most 12 tokens."""
    keras.utils.set_random_seed(2)
    model = variants.transformer(
        dataclasses.replace(tiny_hparams, self_attention_neighborhood=3), tiny_vocabulary.size
    )
    transpose_softmax(model)  # as in Translator.from_folders
    params = DecodeHParams(beam_size=3, extra_length=3, n=2)
    return Server(Translator(model, tiny_vocabulary, params, max_length=12))


def test_sentences_are_translated_separately(server: Server) -> None:
    """The same split, outputs and order as those of the translator, for texts with and without
    several sentences.
    """
    texts = [
        "the dog. A cat sat! ",
        "",
        "the cat",
        "the dog.A cat? \u200b",
        "\u200b",
        "犬。 the cat! . ? !",
    ]
    served = Served(server.translator, "sentences").translate_nbest(tf.constant(texts))
    expected = server.translator.translate(texts, long_lines="sentences")
    assert [translation.segments for translation in expected] == [2, 1, 1, 1, 1, 2]
    for translation, outputs, scores in zip(
        expected, served["outputs"].numpy(), served["scores"].numpy(), strict=True
    ):
        for hypothesis, output, score in zip(translation.hypotheses, outputs, scores, strict=False):
            assert hypothesis.text == output.decode()
            assert hypothesis.score == pytest.approx(score, rel=1e-5)


def test_max_input_size_limits_the_sources_and_newlines_in_an_output_become_spaces(
    copier: Translator,
) -> None:
    params = dataclasses.replace(copier.decode_hparams, max_input_size=3)
    short = Served(Translator(copier.model, copier.vocabulary, params, max_length=12))
    outputs = short.translate(tf.constant(["dog dog dog dog", "dog", "a\n", ""]))["outputs"]
    assert outputs.numpy().tolist() == [b"dog dog", b"dog", b"a", b""]
    [ids] = short.translate_tokens(tf.constant([[7, 8, 9, EOS_ID]]))["outputs"].numpy().tolist()
    assert unpadded(ids) == [7, 8, EOS_ID]
    outputs = Served(copier).translate(tf.constant(["a\ncat", "a\r\u2028b"]))["outputs"]
    assert decoded(outputs) == ["a cat", "a\r\u2028b"]


def test_vocabularies_of_tensor2tensor_are_served(tmp_path: Path) -> None:
    """The bytes of the sources have the same ids as subwords of the targets, so the model copies
    them.
    """
    vocabulary = small_subwords().with_sources(ByteVocabulary())
    server = Server(copying(vocabulary))
    texts = ["\x194", "", "\x01\x03\t\x0c4", " \u3000\x144"]
    expected = ["cat.", "", "the \r.", "\ufffd."]
    assert [translation.text for translation in server.translator.translate(texts)] == expected
    # One signature is enough to see that TensorFlow saves the vocabularies' tables.
    server.served.functions = {"serving_default": server.served.functions["serving_default"]}
    tf.saved_model.save(server.served, str(tmp_path), server.served.functions)
    loaded = tf.saved_model.load(str(tmp_path)).signatures["serving_default"](tf.constant(texts))
    assert decoded(loaded["outputs"]) == expected
    server = Server(server.translator)
    # As in decoding, the spaces around a source do not count.
    scores = server.ask("score", [" \x194\t", "\x194", "w2"], ["cat.", "cat.", "the"])
    assert scores["lengths"].tolist() == [3, 3, 2]
    [pair] = server.translator.score([" \x194"], ["cat."])
    assert scores["log_probs"][0] == scores["log_probs"][1] == pytest.approx(pair.log_prob)
    assert server.ask_tokens([[2, 27, 400]])["outputs"][0, :4].tolist() == [2, 27, EOS_ID, PAD_ID]


def test_byte_pairs_of_other_libraries_are_served() -> None:
    """Sources have subword-nmt's codes, and the model copies their ids to targets of Hugging Face's
    tokenizers.
    """
    pytest.importorskip("tokenizers", reason="the extra tokenizers is not installed")
    codes = BpeVocabulary("#version: 0.2\nt h\nth e</w>\nd o\ndo g</w>\nä 中\n".encode())
    vocabulary = TokenizerVocabulary(tokenizer_json()).with_sources(codes)
    server = Server(copying(vocabulary))
    texts = ["the dog", "", "thedoge  äh", " \u3000中ä中@@ dog"]
    expected = [translation.text for translation in server.translator.translate(texts)]
    assert len(set(expected)) == 4
    assert decoded(server.ask("serving_default", texts)["outputs"]) == expected


def test_no_text_changes_the_answers_to_the_others(server: Server) -> None:
    odd: list[str | bytes] = [
        b"\xffcat",
        b"a\xe2\x82",
        LONG,
        "",
        "\0",
        "a\ttab ",
        "  a  cat",
        "\u3000",
        "\n",
    ]
    batch = ["the dog", *odd, "a cat sat"]
    texts = [text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in batch]
    translations = server.translator.translate(texts, long_lines="truncate")
    assert [translation.is_truncated for translation in translations] == [
        text == LONG for text in batch
    ]
    answers = server.ask("nbest", batch)
    best = server.ask("serving_default", batch)
    assert answers["outputs"].shape == answers["scores"].shape == (len(batch), 2)
    for rows, scores, translation in zip(
        answers["outputs"], answers["scores"], translations, strict=True
    ):
        # An empty text has only one hypothesis.
        hypotheses = [translation.hypotheses[0], translation.hypotheses[-1]]
        assert decoded(rows) == [hypothesis.text for hypothesis in hypotheses]
        assert scores == pytest.approx([hypothesis.score for hypothesis in hypotheses], abs=1e-4)
    assert best["outputs"].tolist() == answers["outputs"][:, 0].tolist()
    assert best["scores"] == pytest.approx(answers["scores"][:, 0], abs=1e-4)


def test_ids_after_the_end_token_and_unknown_ids_are_ignored_and_a_missing_end_token_is_added(
    server: Server,
) -> None:
    translations = server.translator.translate(["the dog", "a cat sat", "", "a"], n=1)
    sources = [list(translation.source_ids or (EOS_ID,)) for translation in translations]
    length = max(map(len, sources)) + 2
    unknown = [server.translator.vocabulary.size, -1]
    requests = [
        # To join requests of different lengths, a server pads each row with the row's first value.
        [[*ids, *[ids[0]] * (length - len(ids))] for ids in sources],
        padded([ids[:-1] for ids in sources]).tolist(),
        padded([[*ids[:1], PAD_ID, *unknown, *ids[1:]] for ids in sources]).tolist(),
    ]
    for request in requests:
        answers = server.ask_tokens(request)
        expected = padded([translation.hypotheses[0].ids for translation in translations])
        assert answers["outputs"].tolist() == expected.tolist()
        scores = [translation.score for translation in translations]
        assert answers["scores"] == pytest.approx(scores, abs=1e-4)


def test_score_gives_the_log_probabilities_of_given_translations(server: Server) -> None:
    words = " ".join(["dog"] * 14)  # With the end token, a target has at most 12 + 3 tokens.
    sources = ["the dog", "a cat", "", "the dog\t", "the cat", "the cat", "the cat"]
    targets = ["a cat sat", "", "the", " a cat sat ", words, f"{words} the cat", b"dog\xff"]
    expected = server.translator.score(sources, [*targets[:5], words, "dog\ufffd"])
    answers = server.ask("score", sources, targets)
    assert answers["log_probs"] == pytest.approx([pair.log_prob for pair in expected], abs=1e-4)
    assert answers["lengths"].tolist() == [len(pair.token_scores) for pair in expected]
    assert answers["lengths"][4] == 15


def test_empty_requests_get_empty_answers(server: Server) -> None:
    answers = server.ask("nbest", [])
    assert answers["outputs"].shape == answers["scores"].shape == (0, 2)
    answers = server.ask("score", [], [])
    assert answers["log_probs"].shape == answers["lengths"].shape == (0,)
    for rows, count in (([], 0), ([[], []], 2), ([[PAD_ID, PAD_ID]], 1)):
        answers = server.ask_tokens(rows)
        assert answers["outputs"].shape[0] == count and not answers["outputs"].any()
        assert answers["scores"].tolist() == [0] * count


def test_a_large_request_is_translated_in_batches(tiny_vocabulary: Vocabulary) -> None:
    class Small(Copier):
        """A model that fails if its input is larger than a batch, as if memory did not suffice."""

        def encode(self, inputs: tf.Tensor) -> tf.Tensor:
            tf.debugging.assert_less_equal(tf.size(inputs), 60)
            return super().encode(inputs)

        def __call__(
            self, inputs: tf.Tensor, targets: tf.Tensor, seed: tf.Tensor | None = None
        ) -> tf.Tensor:
            return super().__call__(self.encode(inputs), targets)

    params = DecodeHParams(beam_size=2, batch_size=60)
    large = Server(Translator(Small(tiny_vocabulary.size), tiny_vocabulary, params))
    texts = [
        "the dog",
        "",
        "a cat sat on the dog",
        *(f"cat {number}" for number in range(100)),
        " ",
    ]
    answers = large.ask("nbest", texts)
    assert decoded(answers["outputs"][:, 0]) == [*texts[:-1], ""]
    log_probs = large.ask("score", texts, texts)["log_probs"]
    pairs = large.translator.score(texts, texts)
    assert log_probs == pytest.approx([pair.log_prob for pair in pairs])


def test_a_full_disk_leaves_nothing_behind(copier: Translator, tmp_path: Path) -> None:
    with largest_file(4096), pytest.raises(OSError) as error:
        export(copier, tmp_path)
    assert not {"\n", "{", "["} & set(str(error.value))
    assert not list(tmp_path.iterdir())


def test_a_translator_that_samples_cannot_be_served(
    copier: Translator, tiny_vocabulary: Vocabulary
) -> None:
    sampling = Translator(copier.model, tiny_vocabulary, DecodeHParams(sampling_method="random"))
    message = user_error(Served, sampling)
    assert "sampling_method=random has no effect here: a served model always uses beam" in message


def test_each_text_is_translated_into_its_language(tmp_path: Path, tiny_hparams: HParams) -> None:
    """Languages come from tags or the second input, as in the translator. A wrong language is the
    client's error.
    """
    vocabulary = train(["the dog", "a cat", "the cat sat on the dog"], 292, TAGS)
    translator = copying(vocabulary, 12, tags=TAGS)
    server = Server(translator)
    server.served.functions = {"serving_default": server.served.functions["serving_default"]}
    tf.saved_model.save(server.served, str(tmp_path), server.served.functions)
    serve = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    texts = [
        "the dog. a cat",
        ">>de<< the dog",
        "",
        " >>fr<< \u200b",
        "\t>>fr<<the cat",
        f" {LONG} ",
    ]
    languages = ["fr", "fr", "", "", "", "fr"]
    inputs = (tf.constant(texts), tf.constant(languages))
    answers = {
        "truncate": serve(inputs=inputs[0], target_language=inputs[1])["outputs"],
        "sentences": Served(translator, "sentences").translate(*inputs)["outputs"],
    }
    assert answers["truncate"][0] == b">>fr<< the dog. a cat"
    for long_lines, outputs in answers.items():
        expected = translator.translate(texts, target_language="fr", long_lines=long_lines)
        assert decoded(outputs[:5]) == [translation.text for translation in expected[:5]]
    for text, language in (("a", ""), ("a", "it"), (">>it<< a", "de"), (">>it<<", "de")):
        with pytest.raises(tf.errors.InvalidArgumentError, match=">>de<<, >>fr<<"):
            serve(inputs=tf.constant(["", text]), target_language=tf.constant(["de", language]))
    scored = Translator(
        word_model(1, tiny_hparams, vocabulary), vocabulary, DecodeHParams(), 12, tags=TAGS
    )
    sources = ["a cat", ">>fr<< the dog", ""]
    targets = ["the dog", "a", "the"]
    scores = Server(scored).ask("score", sources, targets, ["de", "de", "de"])["log_probs"]
    pairs = scored.score(sources, targets, target_language="de")
    assert scores == pytest.approx([pair.log_prob for pair in pairs], rel=1e-5)


def test_a_model_without_target_languages_reads_its_vocabularys_tags(tiny_hparams: HParams) -> None:
    vocabulary = train(["the dog", "a cat", "the cat sat on the dog"], 292, TAGS)
    translator = Translator(
        word_model(1, tiny_hparams, vocabulary), vocabulary, DecodeHParams(beam_size=2), 12
    )
    server = Server(translator)
    texts = [" >>de<<the dog", ">>it<< a cat", ">>fr<< ", "a >>de<< cat"]
    scores = server.ask("score", texts, texts[::-1])["log_probs"]
    pairs = translator.score(texts, texts[::-1])
    assert scores == pytest.approx([pair.log_prob for pair in pairs], rel=1e-5)
    scores = server.ask("serving_default", texts)["scores"]
    translations = translator.translate(texts)
    assert scores == pytest.approx([each.score for each in translations], rel=1e-5)
