"""The Transformer as a Keras layer that can be saved, in functional models as well."""

import dataclasses
from typing import Any, Self

import keras
from keras import ops

from t2t_repro import registry
from t2t_repro.files.json_file import from_fields
from t2t_repro.hparam import HParams
from t2t_repro.layers.layer_norm import LayerNorm
from t2t_repro.models import transformer as paper
from t2t_repro.models import variants

for _layer in (
    paper.Sinusoids,
    paper.SelfAttention,
    paper.CrossAttention,
    paper.FeedForward,
    paper.Residual,
    LayerNorm,
    paper.Embedding,
    variants.MarianSinusoids,
    variants.LearnedPositions,
    variants.PreNormResidual,
    variants.RelativePositions,
    variants.RelativeSelfAttention,
    variants.RestrictedSelfAttention,
):
    keras.saving.register_keras_serializable("t2t_repro")(_layer)


@keras.saving.register_keras_serializable("t2t_repro")
class Transformer(paper.Transformer):
    """The Transformer that the hparams describe, with the arguments of `variants.transformer`.

    If `training` is true and `seed` is None, as in `fit`, the seeds of dropout are random.
    """

    def __init__(
        self,
        hparams: HParams,
        vocab_size: int,
        target_space_id: int = 0,
        dtype: Any = None,
        source_vocab_size: int = 0,
        **kwargs: Any,
    ) -> None:
        parts = variants.parts_of(hparams)
        super().__init__(hparams, vocab_size, source_vocab_size, parts, dtype=dtype, **kwargs)
        variants.add_weights(self, vocab_size, target_space_id)
        self.seed_generator: keras.random.SeedGenerator | None = None
        self.arguments = {
            "vocab_size": vocab_size,
            "target_space_id": target_space_id,
            "source_vocab_size": source_vocab_size,
        }

    def symbolic_call(self, *arguments: Any, **options: Any) -> Any:
        """Returns symbolic logits, with a source of the seeds that `fit` of a functional model does
        not give.
        """
        self.seed_generator = keras.random.SeedGenerator()
        return super().symbolic_call(*arguments, **options)

    def call(self, inputs: Any, targets: Any, seed: Any = None, training: bool = False) -> Any:
        """Returns the logits [B, T, V] of target ids [B, T], given source ids [B, S].

        `seed`, uint32 [B], has the seed of each example's dropout masks.
        """
        if seed is None and training:
            rows = (ops.shape(inputs)[0],)
            seed = keras.random.randint(rows, 0, 2**31 - 1, seed=self.seed_generator)
        return super().call(inputs, targets, seed)

    def get_config(self) -> dict[str, Any]:
        """Returns everything that `from_config` needs, as JSON."""
        config = {"name": self.name, "trainable": self.trainable, "dtype": self.dtype_policy.name}
        return config | self.arguments | {"hparams": dataclasses.asdict(self.hparams)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Returns a new layer from the result of `get_config`. UserError if it is damaged."""
        config = dict(config)
        fields = config.pop("hparams")
        kind = registry.hparams_class(fields["model"])
        return cls(from_fields(kind, fields, "config.json"), **config)
