"""The Transformer's hparams sets: the paper's sets, small sets for one machine, and tensor2tensor's
versions of base.

batch_size is the number of target tokens that all devices together process in a step.
tensor2tensor's batch_size is the number of positions on each GPU, including padding: 4,096
positions on each of 8 GPUs are 32,768 positions. About a quarter of these are padding, so about
25,000 tokens remain, as in the paper. t2t-paper prints the paper's figures.
"""

from dataclasses import replace
from typing import Any

from t2t_repro import registry
from t2t_repro.hparam import HParams

TINY_TRAINING: dict[str, Any] = {
    "batch_size": 2048,
    "train_steps": 3136,
    "local_eval_frequency": 224,
    "num_last_checkpoints": 1,
    "learning_rate_schedule": "constant*linear_warmup*linear_decay",
    "learning_rate_constant": 0.005,
    "learning_rate_warmup_steps": 800,
}
"""Batches, steps and schedule of transformer_tiny and of the small sets of the other models."""
BIG: dict[str, Any] = {
    "hidden_size": 1024, "filter_size": 4096, "num_heads": 16, "layer_prepostprocess_dropout": 0.3
}  # fmt: skip
"""Sizes and dropout of the big models."""


@registry.register_hparams
def transformer_base() -> HParams:
    """The paper's base model (section 5, Table 3). tensor2tensor's transformer_base is
    transformer_base_v3 here.

    WMT EN-DE has 4.5 M pairs and about 130 M target tokens. At 25,000 tokens per step, an epoch is
    about 5,000 steps, so 100,000 steps are about 19 epochs.
    """
    return HParams()


@registry.register_hparams
def transformer_big() -> HParams:
    """The paper's big model for EN-DE. tensor2tensor's transformer_big is transformer_big_v3 here.

    300,000 steps of 25,000 tokens are about 58 epochs of WMT EN-DE.
    """
    return replace(
        transformer_base(),
        **BIG,
        train_steps=300000,
        # evaluation and checkpoint every ten minutes at the paper's 1.0 s per step
        local_eval_frequency=600,
        num_last_checkpoints=20,
    )


@registry.register_hparams
def transformer_big_enfr() -> HParams:
    """The paper's big model for EN-FR: transformer_big with dropout 0.1.

    WMT EN-FR has 36 M pairs. An epoch is about 45,000 steps, so 300,000 steps are about 7 epochs.
    """
    return replace(transformer_big(), layer_prepostprocess_dropout=0.1)


@registry.register_hparams
def transformer_base_v1() -> HParams:
    """tensor2tensor's first base: the paper's model with a target-space embedding.

    A step has 25,000 target tokens, about as many as tensor2tensor's 4,096 positions on each of 8
    GPUs. 250,000 steps are the default of tensor2tensor's trainer. We expect the same BLEU as with
    transformer_base.
    """
    return replace(transformer_base(), use_target_space_embedding=True, train_steps=250000)


@registry.register_hparams
def transformer_base_v2() -> HParams:
    """tensor2tensor's second base: pre-norm, dropout inside the sub-layers, 8,000 warmup steps,
    doubled learning rate.

    Training is more stable than with version 1. tensor2tensor's users report about the same BLEU
    for both versions.
    """
    return replace(
        transformer_base_v1(),
        norm_before=True,
        attention_dropout=0.1,
        relu_dropout=0.1,
        learning_rate_constant=2.0,
        learning_rate_warmup_steps=8000,
    )


@registry.register_hparams
def transformer_base_v3() -> HParams:
    """tensor2tensor's last base, which it calls transformer_base: version 2 with an Adam beta2 of
    0.997.

    The schedule has other factors than version 2's but gives the same learning rates one step
    later. tensor2tensor's README promises about 28 BLEU on newstest2014 after 300,000 steps on 8
    GPUs.
    """
    return replace(
        transformer_base_v2(),
        optimizer_adam_beta2=0.997,
        learning_rate_schedule="constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size",
    )


@registry.register_hparams
def transformer_small() -> HParams:
    """2 layers of width 256, for corpora of about 200,000 pairs, on one GPU or in a long run on a
    CPU.

    At 8,000 tokens per step, an epoch of 200,000 pairs of 25 tokens is 625 steps, so 20,000 steps
    are 32 epochs. We have not measured this set. Its learning rate is lower than
    transformer_tiny's, because the model is wider.
    """
    return replace(
        transformer_tiny(),
        hidden_size=256,
        filter_size=1024,
        batch_size=8000,
        train_steps=20000,
        local_eval_frequency=1000,
        learning_rate_constant=0.002,
        learning_rate_warmup_steps=2000,
    )


@registry.register_hparams
def transformer_tiny() -> HParams:
    """2 layers of width 128, for experiments on a CPU with corpora of 10,000 to 30,000 pairs.

    At 2,048 tokens per step, an epoch of Multi30k (29,000 pairs of 16 tokens) is 224 steps, so
    3,136 steps are 14 epochs; docs/multi30k.md has the results. The learning rate falls linearly to
    0 at the last step, because the rate of the paper's equation 3 would still be high at the end of
    a short training run. So the last checkpoint is the best, and averaging it with earlier ones
    would not help.
    """
    return replace(
        transformer_base(),
        num_hidden_layers=2,
        hidden_size=128,
        filter_size=512,
        num_heads=4,
        **TINY_TRAINING,
    )


@registry.register_hparams
def marian_base() -> HParams:
    """The model of OPUS-MT, with a schedule for training one on: t2t-import --huggingface
    (docs/huggingface.md).

    1,000 steps of 2,048 tokens are about 4 epochs of Multi30k.
    """
    return replace(
        transformer_base(),
        norm_epsilon=1e-5,
        pos="marian",
        activation="swish",
        use_attention_biases=True,
        use_softmax_bias=True,
        max_length=512,
        **{
            **TINY_TRAINING,
            "train_steps": 1000,
            "learning_rate_constant": 5e-5,
            "learning_rate_warmup_steps": 100,
        },
    )


@registry.register_hparams
def opennmt_base() -> HParams:
    """OpenNMT-tf's TransformerBase, with a schedule for training one on: t2t-import --opennmt_tf
    (docs/opennmt_tf.md).

    Its steps and learning rates are those of marian_base.
    """
    return replace(
        marian_base(),
        model="opennmt_transformer",
        norm_before=True,
        norm_epsilon=1e-3,
        pos="timing",
        activation="relu",
        attention_dropout=0.1,
        relu_dropout=0.1,
    )


@registry.register_hparams
def transformer_multi30k() -> HParams:
    """4 layers of width 192 with much dropout, for corpora of about 30,000 pairs that are seen
    dozens of times.

    At 4,096 tokens per step, an epoch of Multi30k (29,000 pairs) is 112 steps, so 4,000 steps are
    36 epochs; docs/multi30k.md has the results. The initial weights are small, without which four
    layers learn slowly (docs/depth.md). The learning rate falls linearly to 0, as in
    transformer_tiny.
    """
    return replace(
        transformer_tiny(),
        num_hidden_layers=4,
        hidden_size=192,
        initializer_gain=0.5,
        layer_prepostprocess_dropout=0.3,
        attention_dropout=0.1,
        relu_dropout=0.1,
        batch_size=4096,
        train_steps=4000,
        local_eval_frequency=500,
        learning_rate_constant=0.004,
        learning_rate_warmup_steps=1500,
    )
