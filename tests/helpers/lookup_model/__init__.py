"""A model of two tables, which TensorFlow traces within milliseconds, for tests of programs in
which any model will do.

programs.LOOKUP has the flags that train this model. A program traces the Transformer for several
seconds.
"""

from typing import Any

import keras
from keras import ops

from t2t_repro import registry
from t2t_repro.hparam import HParams
from t2t_repro.layers.dropout import Seeds, dropout


@registry.register_model
class Lookup:
    """Looks up logits for the previous token and for each source token; the result is their sum and
    mean.
    """

    name = "lookup"
    has_attention = False
    is_normalized = False
    missing_methods = ()
    losses = ()

    def __init__(
        self, hparams: HParams, vocab_size: int, target_space_id: int, precision: str
    ) -> None:
        self.rate = hparams.layer_prepostprocess_dropout
        # So that the losses of different examples differ clearly.
        draw = keras.initializers.RandomNormal(stddev=1.0)
        self.of_source, self.of_previous = self.trainable_variables = [
            keras.Variable(draw, (vocab_size, vocab_size), name=f"{table}_table")
            for table in ("source", "previous")
        ]

    def __call__(self, inputs: Any, targets: Any, seed: Any = None) -> Any:
        """Returns the logits [B, T, V] of target ids [B, T] for source ids [B, S]."""
        seeds = None if seed is None else Seeds(seed)
        memory = dropout(self.encode(inputs), self.rate, seeds)
        return dropout(self.decode(targets, memory), self.rate, seeds)

    def encode(self, inputs: Any) -> Any:
        """Returns the memory [B, V]: the mean of the source tokens' logits."""
        mask = ops.cast(ops.expand_dims(inputs, -1) != 0, "float32")
        return ops.sum(mask * ops.take(self.of_source, inputs, axis=0), axis=1) / (
            ops.sum(mask, axis=1) + 1e-9
        )

    def decode(self, targets: Any, memory: Any) -> Any:
        previous = ops.pad(targets, ((0, 0), (1, 0)))[:, :-1]
        return ops.take(self.of_previous, previous, axis=0) + memory[:, None]

    def start(self, hypotheses: Any) -> Any:
        return ops.zeros((hypotheses, 0))

    def decode_step(self, ids: Any, t: Any, cache: Any, memory: Any) -> tuple[Any, Any]:
        return ops.take(self.of_previous, ids, axis=0) + memory[:, None], cache
