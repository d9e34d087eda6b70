"""Compares SentencePiece vocabularies with the sentencepiece library, and with the graph of the
served model.

    python benchmarks/sentencepiece_equal.py --models=a.model,b.model --lines=a.en,a.de

Prints, for each model, the number of lines with other ids, and the number of lines whose ids decode
to another text.
"""

from __future__ import annotations

from typing import Any

import sentencepiece
import tensorflow as tf
from absl import app, flags

from t2t_repro.data.vocabularies.graph import graph_vocabulary
from t2t_repro.data.vocabularies.sentencepiece import SentencePieceVocabulary
from t2t_repro.files.textfile import read_lines
from t2t_repro.files.untrusted import read_bytes

MODELS = flags.DEFINE_list("models", None, "models that spm_train made", required=True)
LINES = flags.DEFINE_list("lines", None, "text files", required=True)


def differences(model: bytes, lines: list[str]) -> list[int]:
    """Returns the numbers of lines that differ: ids in the library and in the graph, then texts in
    both.
    """
    vocabulary = SentencePieceVocabulary(model)
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = [row[:-1] for row in vocabulary.encode(lines)]
    library_ids = library.Encode(lines)
    graph = graph_vocabulary(vocabulary)
    texts = vocabulary.decode(ids)
    ragged = tf.ragged.constant(ids, tf.int32, row_splits_dtype=tf.int64)
    pairs: list[tuple[list[Any], list[Any]]] = [
        (ids, [[vocabulary.ids[number] for number in row] for row in library_ids]),
        (ids, graph.tokenize(lines).to_list()),
        (texts, library.Decode(library_ids)),
        (texts, [text.decode() for text in graph.detokenize(ragged).numpy()]),
    ]
    return [sum(a != b for a, b in zip(ours, theirs, strict=True)) for ours, theirs in pairs]


def main(argv: list[str]) -> None:
    """Compares all models."""
    lines = [line for path in LINES.value for line in read_lines(path)]
    print(
        f"{len(lines):,} lines; different ids in the library and in the graph, different texts in "
        "both:"
    )
    for path in MODELS.value:
        print(path, *differences(read_bytes(path, 1 << 24), lines))


if __name__ == "__main__":
    app.run(main)
