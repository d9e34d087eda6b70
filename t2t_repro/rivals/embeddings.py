"""The embeddings of a model's sources and targets."""

from typing import Any

from t2t_repro.hparam import HParams


def make_embeddings(
    hparams: HParams, make: Any, vocab_size: int, source_vocab_size: int
) -> tuple[Any, Any]:
    """Returns the embeddings of sources and targets, which are the same if the hparams say so.

    `make` makes an `Embedding`, given the size of its vocabulary and its name. `source_vocab_size`
    is 0 if sources and targets share a vocabulary.
    """
    source = make(source_vocab_size or vocab_size, name="embedding")
    if hparams.shared_embedding or hparams.shared_embedding_and_softmax_weights:
        return source, source
    return source, make(vocab_size, name="target_embedding")
