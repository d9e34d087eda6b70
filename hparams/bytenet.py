"""ByteNet's hparams sets (Kalchbrenner et al. 2016): that of its paper for characters, and a small one for a CPU."""

from __future__ import annotations

from t2t_repro import registry
from t2t_repro.hparam import HParams
from t2t_repro.hparams.transformer import TINY_TRAINING


@registry.register_hparams
def bytenet() -> HParams:
    """ByteNet for WMT EN-DE on characters: 30 blocks of inner width 800 in each stack (section 5).

    The paper reports 23.75 BLEU on newstest2014. It has a vocabulary of 323 characters; the nearest here is a byte
    vocabulary (docs/rivals.md). With its 258 entries, the model has 273 M parameters; the paper prints no number. As in
    the paper, Adam's learning rate is 0.0003. The paper mentions neither dropout nor label smoothing for translation.
    It states neither the batch size nor the number of steps: those here are transformer_base's. A step of 25,000
    characters has about 170 pairs, so 100,000 steps are about 4 epochs. For the paper's search, give t2t-decoder
    --decode_hparams=beam_size=12,alpha=0. We have not measured this set.
    """
    return registry.hparams_class("bytenet")(
        num_hidden_layers=30,
        hidden_size=800,
        shared_embedding_and_softmax_weights=False,
        layer_prepostprocess_dropout=0.0,
        label_smoothing=0.0,
        max_length=500,
        learning_rate_schedule="constant",
        learning_rate_constant=0.0003,
        optimizer_adam_beta2=0.999,
        optimizer_adam_epsilon=1e-8,
        num_last_checkpoints=1,
    )


@registry.register_hparams
def bytenet_tiny() -> HParams:
    """15 blocks of inner width 64 in each stack, for experiments like those of transformer_tiny, on subwords or bytes.

    With 8,000 vocabulary entries it has 1.93 M parameters; transformer_tiny has 1.95 M. Source, target and softmax
    share one embedding matrix. Batches, steps and schedule are those of transformer_tiny.
    """
    return registry.hparams_class("bytenet")(
        num_hidden_layers=15,
        hidden_size=64,
        **TINY_TRAINING,
    )
