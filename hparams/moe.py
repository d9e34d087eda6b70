"""The hparams sets of LSTM stacks with mixtures of experts (Shazeer et al. 2017, section 5.3)."""

from __future__ import annotations

from t2t_repro import registry
from t2t_repro.hparam import HParams
from t2t_repro.hparams.transformer import TINY_TRAINING


@registry.register_hparams
def moe() -> HParams:
    """The largest published translation model: 2,048 experts in each stack (Shazeer et al. 2017, appendix E).

    With 32,000 wordpieces, the model has 8,695 M parameters; 8.7 B are published. Sizes, dropout and the weight of the
    balancing losses are as published. A step has 1,024,000 target tokens, for the published 16,000 words on each of 64
    GPUs. As published, the learning rate decays with the inverse square root of the step after 10,000 steps. Here it
    grows linearly until then; the published rate grows for 2,000 steps and is constant from there to step 10,000.

    The publication does not state the highest rate or the number of steps. We chose a rate of 0.001 and 37,000 steps,
    which need about 2.0e19 operations, the estimate for this model on EN-DE in the Transformer's Table 2. Label
    smoothing is 0, because the publication does not name it. Adam's other values are the Transformer's. We have not
    trained this set.
    """
    return registry.hparams_class("moe")(
        num_hidden_layers=2,
        hidden_size=512,
        cell_size=2048,
        filter_size=2048,
        moe_num_experts=2048,
        moe_k=4,
        moe_loss_coef=0.01,
        shared_embedding_and_softmax_weights=False,
        layer_prepostprocess_dropout=0.4,
        label_smoothing=0.0,
        batch_size=1024000,
        train_steps=37000,
        num_last_checkpoints=1,
        learning_rate_schedule="constant*linear_warmup*rsqrt_decay",
        learning_rate_constant=0.1,
        learning_rate_warmup_steps=10000,
    )


@registry.register_hparams
def moe_tiny() -> HParams:
    """2 layers of width 96 with 192 cells in each stack, and 4 experts. Each position uses 2 of them.

    The set is for experiments on a CPU with corpora of 10,000 to 30,000 pairs. With a vocabulary of 8,000, the model
    has about as many parameters as transformer_tiny. Batches, training schedule and dropout are those of gnmt_tiny. All
    embeddings share one matrix.
    """
    return registry.hparams_class("moe")(
        num_hidden_layers=2,
        hidden_size=96,
        cell_size=192,
        filter_size=160,
        moe_num_experts=4,
        moe_loss_coef=0.01,
        layer_prepostprocess_dropout=0.2,
        **TINY_TRAINING,
    )
