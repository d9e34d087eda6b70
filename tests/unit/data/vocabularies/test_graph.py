"""Tests that the vocabularies as TensorFlow operations encode and decode as the vocabularies in
Python do.
"""

import random
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import tensorflow as tf

from odd_lines import odd_lines
from sentencepieces import TEXTS, trained
from subwords import small_subwords
from t2t_repro.data.vocabularies import sentencepiece
from t2t_repro.data.vocabularies.bpe import BpeVocabulary
from t2t_repro.data.vocabularies.graph import differences, graph_vocabulary
from t2t_repro.data.vocabularies.huggingface import TokenizerVocabulary
from t2t_repro.data.vocabularies.marian import MarianVocabulary, marian_file
from t2t_repro.data.vocabularies.tensor2tensor import ByteVocabulary, TokenVocabulary
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from tokenizers_json import LLAMA, tokenizer_json

MARIAN = [
    "<pad>",
    "</s>",
    ">>de<<",
    "<unk>",
    "dog",
    *"▁Thedog.,ab012ä中",
    "\uffff",
    "▁dog",
    "▁The",
    "<0x00>",
    "<0xE4>",
]
WORDS = "<pad>\n<EOS>\nthe\ndog,\n<unk>\nÄpfel\n"
CODES = "#version: 0.2\nt h\nth e</w>\n. .\nr q</w>\n@ @\nä 中\n"

VOCABULARIES: dict[str, Callable[[], Vocabulary]] = {
    "subwords": small_subwords,
    "tokens": lambda: TokenVocabulary(WORDS.encode()),
    "bytes": ByteVocabulary,
    "bpe": lambda: BpeVocabulary(CODES.encode()),
    "old bpe": lambda: BpeVocabulary("t h\nth e\ne </w>\n. .\n.. .\nä </w>\n' '\n".encode()),
    "sentencepiece": lambda: sentencepiece.train(TEXTS, 400),
    **{
        name: lambda options=options: sentencepiece.SentencePieceVocabulary(trained(**options))
        for name, options in {
            "unigram": {},
            "byte pairs": {"model_type": "bpe", "byte_fallback": True, "vocab_size": 400},
            "spaces": {
                "remove_extra_whitespaces": False,
                "user_defined_symbols": ["  "],
                "pad_id": 3,
            },
            "suffixes": {
                "treat_whitespace_as_suffix": True,
                "unk_surface": "?",
                "control_symbols": ["<2de>"],
            },
        }.items()
    },
    "marian": lambda: MarianVocabulary(marian_file(MARIAN, trained())),
    "marian with bytes": lambda: MarianVocabulary(
        marian_file(MARIAN, trained(byte_fallback=True, vocab_size=400))
    ),
}
if find_spec("tokenizers"):
    VOCABULARIES["tokenizer"] = lambda: TokenizerVocabulary(tokenizer_json())
    VOCABULARIES["Llama's tokenizer"] = lambda: TokenizerVocabulary(tokenizer_json(**LLAMA))


def random_texts(count: int) -> Iterator[str]:
    """Yields texts of characters from all of Unicode and of those that the vocabularies know."""
    generator = random.Random(7)
    common = [
        "the",
        "dog,",
        "Äpfel",
        "qw",
        "rq",
        " ",
        " ",
        ".",
        *"\\_u;012'ä中😀\u20ac\r\n\0\u2028\u3000\x1c\uffff",
    ]
    for _ in range(count):
        kinds = generator.choices(range(3), k=generator.randrange(12))
        codes = [generator.randrange(0xD800), generator.randrange(0xE000, 0x110000)]
        yield "".join(chr(codes[kind]) if kind < 2 else generator.choice(common) for kind in kinds)


@pytest.mark.parametrize("name", VOCABULARIES)
def test_the_graph_encodes_and_decodes_as_python_does(name: str) -> None:
    vocabulary = VOCABULARIES[name]()
    graph = graph_vocabulary(vocabulary)
    texts = ["", " ", "  ", "the the", " the, the ", "\n", *random_texts(400), *odd_lines(200)]
    texts += [">>de<< dog", ">>x\n y<<dog<< 中"]
    ids = vocabulary.encode(texts)
    assert [[*row, 1] for row in graph.tokenize(texts).to_list()] == ids
    generator = random.Random(8)
    end = vocabulary.size + (0 if vocabulary.suffix == ".model" else 2)
    rows = [
        [generator.randrange(2, end) for _ in range(generator.randrange(9))] for _ in range(400)
    ]
    rows += [row[:-1] for row in ids]
    decoded = [
        text.decode()
        for text in graph.detokenize(
            tf.ragged.constant(rows, tf.int32, row_splits_dtype=tf.int64)
        ).numpy()
    ]
    assert decoded == [text.replace("\ud800", "\ufffd") for text in vocabulary.decode(rows)]
    assert graph.tokenize(tf.constant([], tf.string)).shape[0] == 0


def test_a_loaded_model_has_all_its_vocabularies(tmp_path: Path) -> None:
    vocabularies = [
        sentencepiece.train(TEXTS, 400),
        sentencepiece.SentencePieceVocabulary(trained()),
    ]
    model = tf.Module()
    model.graphs = [graph_vocabulary(vocabulary) for vocabulary in vocabularies]
    signature = [tf.TensorSpec([None], tf.string)]
    model.encode = tf.function(
        lambda texts: [graph.tokenize(texts) for graph in model.graphs], signature
    )
    tf.saved_model.save(model, str(tmp_path))
    ids = tf.saved_model.load(str(tmp_path)).encode(tf.constant(TEXTS[:1]))
    assert [[*rows.to_list()[0], 1] for rows in ids] == [
        vocabulary.encode(TEXTS[:1])[0] for vocabulary in vocabularies
    ]


def test_of_splits_with_the_same_score_the_graph_has_that_of_python() -> None:
    cubes = (str(number**3) for number in range(2000))
    vocabulary = sentencepiece.SentencePieceVocabulary(
        trained(sentence_iterator=cubes, vocab_size=40)
    )
    table = ["<pad>", "</s>", *vocabulary.pieces(range(2, vocabulary.size)), "中"]
    texts = [f"{number**7} 中" for number in range(1000, 1300)]
    for cut in (vocabulary, MarianVocabulary(marian_file(table, vocabulary.model))):
        assert [[*row, 1] for row in graph_vocabulary(cut).tokenize(texts).to_list()] == cut.encode(
            texts
        )


def test_the_graph_ignores_words_that_python_refuses() -> None:
    tokens = TokenVocabulary(WORDS.replace("<unk>", "cat").encode())
    assert graph_vocabulary(tokens).tokenize(["the mouse dog,", "mouse"]).to_list() == [[2, 3], []]
    assert "ignores words that its vocabulary lacks" in differences(tokens)
    assert not any(differences(make()) for make in VOCABULARIES.values())


def test_sentencepiece_prints_no_log_line(
    tiny_vocabulary: Vocabulary, capfd: pytest.CaptureFixture[str]
) -> None:
    graph_vocabulary(tiny_vocabulary)
    assert capfd.readouterr().err == ""
