"""The layers that hparams.convolutions describes, for ConvS2S."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from t2t_repro.errors import UserError
from t2t_repro.hparam_checks import LIMITS

if TYPE_CHECKING:
    from t2t_repro.hparam import HParams

GROUP = re.compile(r"(\d+)x(\d+)(?:\*(\d+))?", re.ASCII)
"""Layers of equal shape: width, "x", kernel width and, unless it is one layer, "*" and the number of layers."""


class ConvolutionLayer(NamedTuple):
    """The shape of a layer."""

    width: int
    """Number of channels of the layer's output."""
    kernel: int
    """Kernel width in positions."""


def convolution_layers(hparams: HParams) -> tuple[ConvolutionLayer, ...]:
    """Returns the layers of the larger of the two stacks. The other stack has the first of them.

    Raises:
        UserError: hparams.convolutions has a wrong form, or contradicts the number of layers or kernel_height.
    """
    count = max(hparams.encoder_layers, hparams.decoder_layers)
    if not hparams.convolutions:
        return (ConvolutionLayer(hparams.hidden_size, hparams.kernel_height),) * count
    layers = [layer for group in hparams.convolutions.split("+") for layer in _group(group, hparams.convolutions)]
    if len(layers) != count:
        stacks = [name for name in ("num_encoder_layers", "num_decoder_layers") if getattr(hparams, name) == count]
        raise UserError(
            f"convolutions={hparams.convolutions} describes {len(layers)} layers, but the larger stack has {count}; "
            f"set {(stacks or ['num_hidden_layers'])[0]}={len(layers)}, or change convolutions"
        )
    if hparams.kernel_height != type(hparams).kernel_height:
        raise UserError(
            f"kernel_height={hparams.kernel_height} has no effect with convolutions={hparams.convolutions}, which has "
            "the kernel widths; omit one of them"
        )
    return tuple(layers)


def _group(group: str, text: str) -> list[ConvolutionLayer]:
    """Returns the layers of one group, such as "512x3*9", of hparams.convolutions, which is `text`."""
    match = GROUP.fullmatch(group)
    sizes = [int(number or 1) for number in match.groups()] if match else [0]
    if min(sizes) < 1:
        raise UserError(
            f"convolutions={text}: {group!r} must be WIDTHxKERNEL or WIDTHxKERNEL*LAYERS; write e.g. 512x3*9+1024x1*2"
        )
    for size, name in zip(sizes, ("hidden_size", "kernel_height", "num_hidden_layers"), strict=True):
        if size > LIMITS[name]:
            raise UserError(f"convolutions={text}: {size} in {group!r} must be at most {LIMITS[name]}")
    width, kernel, count = sizes
    return [ConvolutionLayer(width, kernel)] * count
