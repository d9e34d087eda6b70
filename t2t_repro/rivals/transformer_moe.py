"""The Transformer with a mixture of experts in the middle layer of each stack, like tensor2tensor's
transformer_moe.

Shapes: B batch, S source length, T target length, D width, V vocabulary.
"""

from dataclasses import dataclass
from typing import Any

from keras import ops

from t2t_repro.layers.base import Tensor
from t2t_repro.layers.dropout import Seeds, dropout
from t2t_repro.models.transformer import (
    DecoderLayer,
    EncoderLayer,
    KeysValues,
    Memory,
    Parts,
    Sizes,
    Transformer,
    causal_bias,
    shift_right,
)
from t2t_repro.models.variants import add_weights, parts_of
from t2t_repro.rivals.experts import Experts, ExpertsHParams


@dataclass(frozen=True)
class TransformerMoeHParams(ExpertsHParams):
    """The model's hparams. `filter_size` is also the inner width of each expert."""

    model: str = "transformer_moe"


class ExpertsEncoderLayer(EncoderLayer):
    """An encoder layer whose feed-forward network is a mixture of experts."""

    def call(
        self, x: Tensor, bias: Tensor = None, seeds: Seeds | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the output and the attention weights, see `EncoderLayer.call`."""
        first, second = self.residuals
        y, weights, _ = self.self_attention(first.sublayer_input(x), bias, seeds=seeds)
        x = first(x, y, seeds=seeds)
        is_token = None if bias is None else ops.equal(bias[:, 0, 0], 0.0)
        y = self.feed_forward(second.sublayer_input(x), is_token, seeds=seeds)
        return second(x, y, seeds=seeds), {"encoder": weights}


class ExpertsDecoderLayer(DecoderLayer):
    """A decoder layer whose feed-forward network is a mixture of experts."""

    def call(
        self,
        x: Tensor,
        keys_values: KeysValues,
        source_bias: Tensor = None,
        later_bias: Tensor = None,
        cache: KeysValues | None = None,
        seeds: Seeds | None = None,
        is_token: Tensor = None,
    ) -> tuple[Tensor, KeysValues, dict[str, Tensor]]:
        """Returns the output, the cache and the attention weights, see `DecoderLayer.call`.

        In training, the losses that balance experts count the positions of `is_token`, bool [B, T].
        """
        first, second, third = self.residuals
        y = first.sublayer_input(x)
        y, self_weights, new_cache = self.self_attention(y, later_bias, cache, seeds=seeds)
        x = first(x, y, seeds=seeds)
        y = second.sublayer_input(x)
        y, cross_weights = self.cross_attention(y, keys_values, source_bias, seeds=seeds)
        x = second(x, y, seeds=seeds)
        y = self.feed_forward(third.sublayer_input(x), is_token, seeds=seeds)
        weights = {"decoder": self_weights, "cross": cross_weights}
        return third(x, y, seeds=seeds), new_cache, weights


class TransformerMoe(Transformer):
    """A `Transformer` in which `Experts` replace the feed-forward network of the middle layer of
    each stack. Of two middle layers, the upper has experts.
    """

    hparams_class = TransformerMoeHParams

    def __init__(
        self,
        hparams: TransformerMoeHParams,
        vocab_size: int,
        target_space_id: int = 0,
        dtype: Any = None,
        source_vocab_size: int = 0,
    ) -> None:
        def experts(sizes: Sizes, dtype: Any, name: str) -> Experts:
            return Experts(hparams, dtype=dtype, name="experts")

        parts = parts_of(hparams)
        middle = parts._replace(feed_forward=experts)

        def encoder_layer(sizes: Sizes, parts: Parts, dtype: Any, name: str) -> EncoderLayer:
            if name == f"layer_{hparams.encoder_layers // 2}":
                return ExpertsEncoderLayer(sizes, middle, dtype=dtype, name=name)
            return EncoderLayer(sizes, parts, dtype=dtype, name=name)

        def decoder_layer(sizes: Sizes, parts: Parts, dtype: Any, name: str) -> DecoderLayer:
            if name == f"layer_{hparams.decoder_layers // 2}":
                return ExpertsDecoderLayer(sizes, middle, dtype=dtype, name=name)
            return DecoderLayer(sizes, parts, dtype=dtype, name=name)

        parts = parts._replace(encoder_layer=encoder_layer, decoder_layer=decoder_layer)
        super().__init__(hparams, vocab_size, source_vocab_size, parts, dtype=dtype)
        add_weights(self, vocab_size, target_space_id)

    def decode(
        self,
        targets: Tensor,
        memory: Memory,
        seeds: Seeds | None = None,
        return_attention: bool = False,
    ) -> Any:
        """Returns the logits [B, T, V] of target ids [B, T], see `Transformer.decode`."""
        x = self.target_embedding(shift_right(targets))
        x = dropout(x + self.target_position(x), self.sizes.dropout, seeds)
        later = causal_bias(ops.shape(x)[1])
        attention = []
        for layer, keys_values in zip(self.decoder, memory.layers, strict=True):
            options = {"later_bias": later, "seeds": seeds}
            if isinstance(layer, ExpertsDecoderLayer):
                options["is_token"] = ops.not_equal(targets, 0)
            x, _, weights = layer(x, keys_values, memory.bias, **options)
            attention.append(weights)
        logits = self.softmax.logits(self.decoder_norm(x))
        return (logits, attention) if return_attention else logits
