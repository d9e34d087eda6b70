"""The hparams sets of the rivals: each at its published size, and a small one for a CPU.

The sets ..._tiny are for experiments like those of transformer_tiny, on corpora of 10,000 to 30,000
pairs. With a vocabulary of 8,000, each model has about as many parameters as transformer_tiny, 1.95
M. Batches, number of steps and, unless the set says otherwise, schedule are those of
transformer_tiny. All embeddings share one matrix. docs/rivals.md has the numbers of parameters.

If a publication does not state a value, the sets have that of transformer_base, unless they say
otherwise. We have not trained the large sets.
"""

from dataclasses import replace
from typing import Any

from t2t_repro import registry
from t2t_repro.hparam import HParams
from t2t_repro.hparams.transformer import TINY_TRAINING, transformer_tiny

PUBLISHED: dict[str, Any] = {
    "shared_embedding_and_softmax_weights": False, "label_smoothing": 0.0, "num_last_checkpoints": 1
}  # fmt: skip
"""Values of the sets of published sizes, except for transformer_moe."""


@registry.register_hparams
def transformer_moe() -> HParams:
    """transformer_base with 16 experts in the middle layer of each stack. Each position uses 2 of
    them.

    tensor2tensor's transformer_moe_base has these numbers of experts and this weight of the
    balancing losses. Its layer_types, such as "a/a/a-moe/a/a", put experts into the middle layer.
    The other values are those of transformer_base, so that only the experts differ.
    """
    return registry.hparams_class("transformer_moe")(moe_num_experts=16)


@registry.register_hparams
def transformer_moe_tiny() -> HParams:
    """transformer_tiny with 4 experts in the second layer of each stack. Each position uses 2 of
    them.

    The inner width is 256 instead of 512.
    """
    return registry.hparams_class("transformer_moe").of(
        transformer_tiny(), model="transformer_moe", moe_num_experts=4, filter_size=256
    )


@registry.register_hparams
def moe() -> HParams:
    """The largest published translation model: 2,048 experts in each stack (Shazeer et al. 2017,
    appendix E).

    Sizes, attention, dropout and the weight of the balancing losses are as published. So is the
    hierarchical gating, in which each of two levels chooses 2: 2 experts in each of 2 groups. The
    number of groups, 64, is ours. A step has 1,024,000
    target tokens, for the published 16,000 words on each of 64 GPUs. As published, the learning
    rate decays with the inverse square root of the step after 10,000 steps. Here it grows linearly
    until then; the published rate grows for 2,000 steps and is constant from there to step 10,000.
    The publication does not state the highest rate or the number of steps. We chose a rate of 0.001
    and 37,000 steps, which need about 2.0e19 operations, the estimate for this model on EN-DE in
    the Transformer's Table 2.
    """
    return registry.hparams_class("moe")(
        num_hidden_layers=2,
        hidden_size=512,
        cell_size=2048,
        filter_size=2048,
        moe_num_experts=2048,
        moe_k=2,
        moe_groups=64,
        moe_loss_coef=0.01,
        attention_mechanism="tanh_product",
        layer_prepostprocess_dropout=0.4,
        batch_size=1024000,
        train_steps=37000,
        learning_rate_schedule="constant*linear_warmup*rsqrt_decay",
        learning_rate_constant=0.1,
        learning_rate_warmup_steps=10000,
        **PUBLISHED,
    )


@registry.register_hparams
def moe_tiny() -> HParams:
    """2 layers of width 96 with 192 cells in each stack, and 4 experts. Each position uses 2 of
    them.

    The attention is the published one. With embeddings multiplied by the square root of their
    width, the model learns faster.
    """
    return registry.hparams_class("moe")(
        num_hidden_layers=2,
        hidden_size=96,
        cell_size=192,
        filter_size=160,
        moe_num_experts=4,
        moe_loss_coef=0.01,
        attention_mechanism="tanh_product",
        multiply_embedding_mode="sqrt_depth",
        layer_prepostprocess_dropout=0.2,
        **TINY_TRAINING,
    )


@registry.register_hparams
def convs2s_ende() -> HParams:
    """ConvS2S for WMT EN-DE: 15 layers of widths 512, 1,024 and 2,048 in each stack.

    The widths are those of the authors' code. The text of section 5.1 has 512 in ten layers, 768 in
    three and 2,048 in two, with which the model would not have its published number of parameters
    (docs/paper.md). The paper reports 25.16 BLEU on newstest2014, with 40,000 BPE types. Dropout is
    0.2, as in the authors' published command.

    The paper trains with Nesterov's accelerated gradient method: momentum 0.99, gradients of a norm
    above 0.1 divided by their norm and multiplied by 0.1, and a learning rate of 0.25 that is
    divided by 10 after each epoch once the dev perplexity stops falling (section 4.2). It does not
    mention label smoothing. This set trains with Adam, as transformer_base does; docs/rivals.md has
    a command for Nesterov's method.
    """
    return registry.hparams_class("convs2s")(
        num_hidden_layers=15,
        hidden_size=768,
        convolutions="512x3*9+1024x3*4+2048x1*2",
        output_embedding_size=512,
        layer_prepostprocess_dropout=0.2,
        **PUBLISHED,
    )


@registry.register_hparams
def convs2s_enfr() -> HParams:
    """ConvS2S for WMT EN-FR: 15 layers of widths 512 to 4,096 in each stack.

    The widths are those of the authors' code. The text of section 5.1 states 15 layers, but lists
    14. The paper reports 40.46 BLEU on newstest2014, with 40,000 BPE types, after 37 days on 8
    GPUs. Dropout is 0.1, as in the authors' published command. Batches and number of steps are
    those of transformer_big_enfr.
    """
    return replace(
        convs2s_ende(),
        convolutions="512x3*6+768x3*4+1024x3*3+2048x1+4096x1",
        layer_prepostprocess_dropout=0.1,
        train_steps=300000,
    )


@registry.register_hparams
def convs2s_tiny() -> HParams:
    """4 encoder and 3 decoder layers of width 128 and kernel width 3."""
    return registry.hparams_class("convs2s")(
        num_hidden_layers=4, num_decoder_layers=3, hidden_size=128, **TINY_TRAINING
    )


@registry.register_hparams
def gnmt() -> HParams:
    """GNMT at its published size: 8 encoder and 8 decoder layers of width 1,024 (Wu et al. 2016).

    Initial weights, clipping and Adam's rate of 0.0002 are as published. Dropout is that of EN-FR;
    for EN-DE, the publication's is 0.3. Decode with the publication's penalties:
    --decode_hparams="alpha=0.2,coverage_penalty=0.2".

    The set is the first phase of training. Its 10,000 steps of 25,000 target tokens (about 800
    pairs) have about as many pairs as the published 60,000 steps of 128 pairs. The 200 warmup steps
    are ours. The second phase is another run: --hparams_set=gnmt_sgd --warm_start_from=M, with the
    model folder M of the first one.
    """
    return registry.hparams_class("gnmt")(
        num_hidden_layers=8,
        hidden_size=1024,
        initializer="uniform",
        initializer_gain=0.4,
        layer_prepostprocess_dropout=0.2,
        clip_grad_norm=5.0,
        train_steps=10000,
        learning_rate_schedule="constant*linear_warmup",
        learning_rate_constant=0.0002,
        learning_rate_warmup_steps=200,
        optimizer_adam_beta2=0.999,
        optimizer_adam_epsilon=1e-8,
        **PUBLISHED,
    )


@registry.register_hparams
def gnmt_sgd() -> HParams:
    """The second phase of gnmt: stochastic gradient descent at the rate 0.5, which is halved four
    times.

    The publication starts to halve the rate at step 1,200,000, and halves it in every 200,000 steps
    of 128 pairs, for 800,000 steps. With the steps of about 800 pairs here, that is at step 182,000
    and in every 32,000 steps after it.
    """
    return replace(
        gnmt(),
        optimizer="sgd",
        optimizer_adam_beta2=HParams.optimizer_adam_beta2,
        optimizer_adam_epsilon=HParams.optimizer_adam_epsilon,
        train_steps=310000,
        learning_rate_schedule="constant*exp_decay",
        learning_rate_constant=0.5,
        learning_rate_warmup_steps=150000,  # the first decay is learning_rate_decay_steps later
        learning_rate_decay_rate=0.5,
        learning_rate_decay_steps=32000,
        learning_rate_decay_staircase=True,
    )


@registry.register_hparams
def gnmt_tiny() -> HParams:
    """3 encoder and 3 decoder layers of width 120. Three layers are the fewest with a residual
    connection.

    With the factors of embeddings (the square root of their width) and outputs, the model learns
    faster.
    """
    return registry.hparams_class("gnmt")(
        num_hidden_layers=3,
        hidden_size=120,
        multiply_embedding_mode="sqrt_depth",
        output_factor=4.0,
        layer_prepostprocess_dropout=0.2,
        **TINY_TRAINING,
    )


@registry.register_hparams
def bytenet() -> HParams:
    """ByteNet for WMT EN-DE on characters: 30 blocks of inner width 800 in each stack (section 5).

    The paper reports 23.75 BLEU on newstest2014. Its vocabularies have 323 German and 296 English
    characters; the nearest here is a byte vocabulary (docs/rivals.md). As in the paper, Adam's
    learning rate is 0.0003. The paper mentions neither dropout nor label smoothing for translation.
    A step of 25,000 characters has about 170 pairs, so 100,000 steps are about 4 epochs. For the
    paper's search, give t2t-decoder --decode_hparams=beam_size=12,alpha=0.
    """
    return registry.hparams_class("bytenet")(
        num_hidden_layers=30,
        hidden_size=800,
        layer_prepostprocess_dropout=0.0,
        max_length=500,
        learning_rate_schedule="constant",
        learning_rate_constant=0.0003,
        optimizer_adam_beta2=0.999,
        optimizer_adam_epsilon=1e-8,
        **PUBLISHED,
    )


@registry.register_hparams
def bytenet_tiny() -> HParams:
    """15 blocks of inner width 64 in each stack, for subwords or bytes.

    With dropout on the embeddings and without the published last ReLU, the model translates better.
    """
    return registry.hparams_class("bytenet")(
        num_hidden_layers=15,
        hidden_size=64,
        last_activation="linear",
        layer_prepostprocess_dropout=0.2,
        embedding_dropout=0.2,
        **TINY_TRAINING,
    )


@registry.register_hparams
def deep_att() -> HParams:
    """Deep-Att at its published size: 9 encoder and 7 decoder layers of width 512 (Zhou et al.
    2016).

    A step has 18,000 target tokens, about as many as the published 500 to 800 pairs. The highest
    learning rate is gnmt's.
    """
    return registry.hparams_class("deep_att")(
        num_hidden_layers=9,
        num_decoder_layers=7,
        hidden_size=512,
        embedding_size=256,
        layer_prepostprocess_dropout=0.1,
        batch_size=18000,
        learning_rate_schedule="constant*linear_warmup*linear_decay",
        learning_rate_constant=0.0002,
        **PUBLISHED,
    )


@registry.register_hparams
def deep_att_tiny() -> HParams:
    """3 encoder and 3 decoder layers of width 88.

    The learning rate is lower than that of transformer_tiny, 0.005, with which the model did not
    learn to reproduce 50 pairs of random tokens before it had the tanh of sums.

    With the factors of embeddings (the square root of their width) and outputs, and with the tanh,
    the model learns faster. With the tanh, its gradients do not grow at higher rates.
    """
    return registry.hparams_class("deep_att")(
        num_hidden_layers=3,
        hidden_size=88,
        multiply_embedding_mode="sqrt_depth",
        sums_activation="tanh",
        output_factor=4.0,
        # With 1, it learned 50 pairs more slowly; with 2, it did not learn them.
        initializer_gain=0.5,
        **TINY_TRAINING | {"learning_rate_constant": 0.002},
    )
