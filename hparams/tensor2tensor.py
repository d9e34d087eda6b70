"""hparams sets of tensor2tensor with the values that its papers and scripts used.

A user directory imports this module in place of tensor2tensor.models.transformer: its functions
have tensor2tensor's names and meanings. The registered names differ for two sets, because
transformer_base and transformer_big are the paper's models here: --hparams_set=transformer_base_v3
and transformer_big_v3 are tensor2tensor's. Each step has the same learning rate as in
tensor2tensor.

tensor2tensor's batch_size counts positions on each GPU, including padding. Here batch_size counts
the target tokens of a step over all devices, about three quarters of these positions (see
transformer.py). To use more GPUs, change it in the sets for a single GPU. The optimizer is always
Adam. tensor2tensor's Adafactor multiplies each update by the root mean square of the weight. With
optimizer_adafactor_multiply_by_parameter_scale, Adam does this here too, so Adafactor's learning
rates can be used.
"""

from dataclasses import replace

from t2t_repro import registry
from t2t_repro.hparam import HParams
from t2t_repro.hparams.transformer import (  # noqa: F401, user directories use them
    BIG,
    transformer_base_v1,
    transformer_base_v2,
    transformer_base_v3,
)

transformer_base = transformer_base_v3


@registry.register_hparams
def transformer_big_v3() -> HParams:
    """The set that tensor2tensor calls transformer_big: transformer_base_v3 with the sizes of big
    and dropout 0.3.

    tensor2tensor's batch_size is 2,048 positions on each GPU. On 8 GPUs, a step has about 12,500
    target tokens.
    """
    return replace(transformer_base(), batch_size=12500, **BIG)


transformer_big = transformer_big_v3


def transformer_tiny() -> HParams:
    """tensor2tensor's transformer_tiny. The registered set of this name has the same sizes, but
    trains otherwise.
    """
    return replace(
        transformer_base(), num_hidden_layers=2, hidden_size=128, filter_size=512, num_heads=4
    )


def transformer_small() -> HParams:
    """tensor2tensor's transformer_small. The registered set of this name has the same sizes, but
    trains otherwise.
    """
    return replace(
        transformer_base(), num_hidden_layers=2, hidden_size=256, filter_size=1024, num_heads=4
    )


@registry.register_hparams
def transformer_base_single_gpu() -> HParams:
    """tensor2tensor's base for one GPU: 780 target tokens a step (1,024 positions there), 16,000
    warmup steps.
    """
    return replace(
        transformer_base(),
        batch_size=780,
        learning_rate_schedule="constant*linear_warmup*rsqrt_decay",
        learning_rate_constant=0.1,
        learning_rate_warmup_steps=16000,
    )


@registry.register_hparams
def transformer_big_single_gpu() -> HParams:
    """tensor2tensor's big for one GPU: 1,560 target tokens a step (2,048 positions there), dropout
    0.1.
    """
    return replace(
        transformer_big_v3(),
        batch_size=1560,
        layer_prepostprocess_dropout=0.1,
        learning_rate_warmup_steps=16000,
    )


@registry.register_hparams
def transformer_base_multistep8() -> HParams:
    """transformer_base_v3 for one GPU, for which tensor2tensor sums the gradients of 8 batches.

    A step here has the tokens of 8 of tensor2tensor's steps, which are too many for a small GPU, so
    t2t-trainer accumulates gradients. tensor2tensor counts each of the 8 batches as a step: its
    250,000 steps are 31,250 here, and its learning rate at step 8 * s is the rate here at step s.
    """
    return replace(transformer_base(), train_steps=31250)


@registry.register_hparams
def transformer_tpu() -> HParams:
    """tensor2tensor's base for TPUs: transformer_base_v3 with Adafactor's learning rates, pairs of
    up to 64 tokens.

    tensor2tensor's batch_size is 2,048 positions on each of 8 cores, and its packed problems have
    few padding positions among them, so a step has 16,000 target tokens here. Pairs are not packed
    here, and dropout is not broadcast.
    """
    return replace(
        transformer_base(),
        batch_size=16000,
        max_length=64,
        learning_rate_schedule="rsqrt_decay",
        learning_rate_constant=1.0,  # not used
        learning_rate_warmup_steps=10000,
        optimizer_adafactor_multiply_by_parameter_scale=True,
    )


@registry.register_hparams
def transformer_big_tpu() -> HParams:
    """tensor2tensor's big for TPUs: transformer_tpu with the sizes of big and dropout 0.3."""
    return replace(transformer_tpu(), **BIG)


@registry.register_hparams
def transformer_relative() -> HParams:
    """transformer_base_v3 with relative self-attention (Shaw et al. 2018) instead of position
    encodings.
    """
    return _relative(transformer_base())


@registry.register_hparams
def transformer_relative_big() -> HParams:
    """transformer_big_v3 with relative self-attention instead of position encodings."""
    return _relative(transformer_big_v3())


def _relative(hparams: HParams) -> HParams:
    """Returns `hparams` with tensor2tensor's relative self-attention."""
    return replace(
        hparams, pos="none", self_attention_type="dot_product_relative", max_relative_position=20
    )
