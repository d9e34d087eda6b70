"""The hparams sets of GNMT (Wu et al. 2016)."""

from __future__ import annotations

from t2t_repro import registry
from t2t_repro.hparam import HParams
from t2t_repro.hparams.transformer import TINY_TRAINING


@registry.register_hparams
def gnmt() -> HParams:
    """GNMT at its published size: 8 encoder and 8 decoder layers of width 1,024 (Wu et al. 2016).

    With 32,000 wordpieces, the model has 281 M parameters; Shazeer et al. (2017) state 278 M. Decode with the
    publication's penalties: --decode_hparams="alpha=0.2,coverage_penalty=0.2".

    The publication trains with 60,000 steps of Adam at the rate 0.0002, then with SGD at the rate 0.5, which it halves
    several times. About 10 replicas take steps of 128 pairs asynchronously, and gradients are clipped to the norm 5.
    Here all steps are Adam's: 100,000 synchronous steps of 25,000 target tokens (about 800 pairs), and the rate falls
    linearly from 0.0002 to 0. Gradients are not clipped. Initial weights are uniform in [-0.04, 0.04] in the
    publication; here, the kernels have 1.0 to 1.5 times this variance, by a gain of 0.8. Dropout is that of EN-FR; for
    EN-DE, the publication's is 0.3. We have not trained this set.
    """
    return registry.hparams_class("gnmt")(
        num_hidden_layers=8,
        hidden_size=1024,
        shared_embedding_and_softmax_weights=False,
        initializer_gain=0.8,
        layer_prepostprocess_dropout=0.2,
        label_smoothing=0.0,
        num_last_checkpoints=1,
        learning_rate_schedule="constant*linear_warmup*linear_decay",
        learning_rate_constant=0.0002,
        learning_rate_warmup_steps=200,
        optimizer_adam_beta2=0.999,
        optimizer_adam_epsilon=1e-8,
    )


@registry.register_hparams
def gnmt_tiny() -> HParams:
    """3 encoder and 3 decoder layers of width 120, for experiments on a CPU with corpora of 10,000 to 30,000 pairs.

    With a vocabulary of 8,000, the model has about as many parameters as transformer_tiny, whose batches and training
    schedule it shares. Three layers are the fewest with a residual connection. All embeddings share one matrix.
    """
    return registry.hparams_class("gnmt")(
        num_hidden_layers=3, hidden_size=120, layer_prepostprocess_dropout=0.2, **TINY_TRAINING
    )
