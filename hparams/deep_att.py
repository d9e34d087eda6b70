"""The hparams sets of Deep-Att (Zhou et al. 2016)."""

from __future__ import annotations

from t2t_repro import registry
from t2t_repro.hparam import HParams
from t2t_repro.hparams.transformer import TINY_TRAINING


@registry.register_hparams
def deep_att() -> HParams:
    """Deep-Att at its published size: 9 encoder and 7 decoder layers of width 512 (Zhou et al. 2016).

    Embeddings have width 256. With 32,000 wordpieces, the model has 139.9 M parameters. We know no published number;
    the publication's vocabularies have words, and are larger. Dropout is 0.1. A step has 18,000 target tokens, about as
    many as the published 500 to 800 pairs. Optimizer, learning rate, initial weights and number of steps are ours: the
    Transformer's Adam with gnmt's rate. We have not trained this set.
    """
    return registry.hparams_class("deep_att")(
        num_hidden_layers=9,
        num_decoder_layers=7,
        hidden_size=512,
        embedding_size=256,
        shared_embedding_and_softmax_weights=False,
        layer_prepostprocess_dropout=0.1,
        label_smoothing=0.0,
        batch_size=18000,
        num_last_checkpoints=1,
        learning_rate_schedule="constant*linear_warmup*linear_decay",
        learning_rate_constant=0.0002,
    )


@registry.register_hparams
def deep_att_tiny() -> HParams:
    """3 encoder and 3 decoder layers of width 88, for experiments on a CPU with corpora of 10,000 to 30,000 pairs.

    With a vocabulary of 8,000, the model has about as many parameters as transformer_tiny, whose batches and number of
    steps it shares. All embeddings share one matrix. The learning rate is lower than that of transformer_tiny, 0.005,
    with which the model did not learn to reproduce 50 pairs of random tokens.
    """
    return registry.hparams_class("deep_att")(
        num_hidden_layers=3,
        hidden_size=88,
        initializer_gain=0.5,  # with 1, it learned 50 pairs more slowly; with 2, it did not learn them
        **TINY_TRAINING | {"learning_rate_constant": 0.002},
    )
