"""The interface of models for training, decoding and serving, and the check that a registered model
has this interface.

A `Model` can be trained, and can score targets. A `DecodingModel` can also generate targets. The
built-in models have this interface; `KerasModel` adds it to any other Keras model. `make_model`
makes a model with this interface.

Shapes: B batch, S source length, T target length, t positions decoded so far, K hypotheses of a
sentence, H heads, V vocabulary. Ids are int64: 0 for padding, 1 for the end of a text.
"""

import inspect
import math
from collections import Counter
from contextlib import suppress
from typing import Any, Protocol, cast, runtime_checkable

import keras
from keras import ops

# Both are private. The public keras.utils.clear_session also clears seeds, name scopes and
# TensorFlow's kernels.
from keras.src.backend.common import global_state
from keras.src.utils.naming import reset_uids

from t2t_repro import registry
from t2t_repro.errors import UserError, located
from t2t_repro.hparam import HParams
from t2t_repro.layers.base import Tensor, float32


@runtime_checkable
class Model(Protocol):
    """A model that can be trained, and can compute the probability of a target."""

    name: str
    """The model's name in the registry."""
    has_attention: bool
    """True if `decode` and `decode_step` can save attention weights, with the argument
    `save_weights_to`.
    """
    is_normalized: bool
    """True if the model returns log-probabilities instead of logits."""
    missing_methods: tuple[str, ...]
    """Methods of `DecodingModel` that this model does not have; empty if the model can decode."""

    @property
    def trainable_variables(self) -> list[Any]:
        """The weights, as keras.Variables with unique paths."""

    def __call__(self, inputs: Tensor, targets: Tensor, seed: Tensor | None = None) -> Tensor:
        """Returns float32 logits [B, T, V] of target ids [B, T], given source ids [B, S].

        The logits of a position depend only on the targets before it. `seed`, uint32 [B], has for
        each example the seed of its dropout masks; None outside training, for no dropout.
        """


class DecodingModel(Model, Protocol):
    """A model that can also generate targets.

    The memory holds the encoded sources; the cache holds what the decoder computed for earlier
    positions. Both are tensors, or tuples, lists, dicts and NamedTuples of tensors. The first
    dimension is B in the memory and B * K in the cache. The search selects indices of this
    dimension to drop finished sentences and to reorder hypotheses.
    """

    def encode(self, inputs: Tensor) -> Any:
        """Returns the memory of source ids [B, S], which `decode` and `decode_step` read."""

    def decode(self, targets: Tensor, memory: Any, save_weights_to: list | None = None) -> Tensor:
        """Returns the logits [B, T, V] of all positions, as `__call__` does.

        `save_weights_to` is a list to which this method appends the cross-attention weights [B, H,
        T, S] of each layer. Callers pass a list only if `has_attention` is True.
        """

    def start(self, hypotheses: Tensor) -> Any:
        """Returns the empty cache for `hypotheses` (B * K) hypotheses."""

    def decode_step(
        self, ids: Tensor, t: Tensor, cache: Any, memory: Any, save_weights_to: list | None = None
    ) -> tuple[Tensor, Any]:
        """Returns the logits [B, K, V] of position t, which is 0 at first, and the cache with
        position t added.

        `ids` [B, K] has the token of each hypothesis at position t - 1, or 0 if t is 0. The weights
        are [B, H, K, S].
        """


DECODING_METHODS = ("encode", "decode", "start", "decode_step")


class KerasModel:
    """A Keras model with the interface of `Model`, and with that of `DecodingModel` if the Keras
    model can decode.

    `model` is any Keras model or layer with `call(inputs, targets)`. `call` may also take `seed`
    and `training`.
    """

    def __init__(self, model: Any, name: str, vocab_size: int) -> None:
        self.layer, self.name = model, name
        call = getattr(model, "call", None)
        parameters = inspect.signature(call).parameters if callable(call) else {}
        if len(parameters) < 2:
            raise UserError(
                f"model {name!r} has no method call(inputs, targets); see "
                "docs/write_your_own_model.md"
            )
        self._takes_seed, self._takes_training = "seed" in parameters, "training" in parameters
        self.missing_methods = tuple(
            name for name in DECODING_METHODS if not callable(getattr(model, name, None))
        )
        self.encode, self.start = getattr(model, "encode", None), getattr(model, "start", None)
        self.has_attention = not self.missing_methods and all(
            "save_weights_to" in inspect.signature(method).parameters
            for method in (model.decode, model.decode_step)
        )
        self.is_normalized = bool(getattr(model, "is_normalized", False))
        # call the model once, because most Keras models create their variables at their first call
        try:
            logits = self(ops.ones((1, 3), "int64"), ops.ones((1, 2), "int64"))
        except Exception as error:
            raise UserError(
                f"model {name!r} fails at its first call ({located(error)}); correct it there"
            ) from error
        if tuple(logits.shape) != (1, 2, vocab_size):
            raise UserError(
                f"model {name!r}: call returned shape {list(logits.shape)} for 2 target tokens; "
                "return logits of shape [batch, target length, vocabulary], here [1, 2, "
                f"{vocab_size}]"
            )
        if untrained := [
            weight.path for weight in model.non_trainable_variables if "float" in weight.dtype
        ]:
            raise UserError(
                f"model {name!r}: weight {untrained[0]} is not trained, so checkpoints do not "
                "hold it; make it trainable, or use a layer without such weights"
            )

    @property
    def trainable_variables(self) -> list[Any]:
        """The Keras model's weights."""
        return cast(list[Any], self.layer.trainable_variables)

    @property
    def non_trainable_variables(self) -> list[Any]:
        """The Keras model's frozen weights, and the states of its random generators."""
        return cast(list[Any], self.layer.non_trainable_variables)

    def __call__(self, inputs: Tensor, targets: Tensor, seed: Tensor | None = None) -> Tensor:
        """Returns the logits [B, T, V]; see `Model`."""
        options: dict[str, Any] = {}
        if self._takes_seed:
            options["seed"] = seed
        if self._takes_training:
            options["training"] = seed is not None
        return float32(self.layer(inputs, targets, **options))

    def decode(self, targets: Tensor, memory: Any, **save_weights_to: list | None) -> Tensor:
        """Returns the logits [B, T, V]; see `DecodingModel`."""
        return float32(self.layer.decode(targets, memory, **save_weights_to))

    def decode_step(
        self, ids: Tensor, t: Tensor, cache: Any, memory: Any, **save_weights_to: list | None
    ) -> tuple[Tensor, Any]:
        """Returns the logits [B, K, V] and the cache with the new position; see `DecodingModel`."""
        logits, cache = self.layer.decode_step(ids, t, cache, memory, **save_weights_to)
        return float32(logits), cache


def make_model(
    hparams: HParams,
    vocab_size: int,
    target_space_id: int = 0,
    precision: str = "float32",
    source_vocab_size: int = 0,
) -> Model:
    """Returns the model named by `hparams.model`, with all its variables. The arguments are those
    of `Transformer`.

    Raises UserError if the model is unknown, cannot be made with these arguments, or breaks a rule
    of the page docs/write_your_own_model.md.
    """
    # Keras numbers unnamed layers and continues the numbers from model to model. Without this
    # reset, variable names would depend on the models that the process made earlier.
    reset_uids()
    hparams, name = registry.for_model(hparams), hparams.model
    if source_vocab_size and (
        hparams.shared_embedding_and_softmax_weights or hparams.shared_embedding
    ):
        raise UserError(
            "source and target have different vocabularies, so they cannot share an embedding; "
            "give --hparams=shared_embedding_and_softmax_weights=false,shared_embedding=false"
        )
    # Only a model whose source and target have different vocabularies needs the argument
    # source_vocab_size.
    source_option = {"source_vocab_size": source_vocab_size} if source_vocab_size else {}
    try:
        registered = registry.model(name)(
            hparams, vocab_size, target_space_id, precision, **source_option
        )
        model = (
            registered
            if isinstance(registered, Model)
            else KerasModel(registered, name, vocab_size)
        )
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise UserError(
            f"model {name!r} does not fit the hparams set ({located(error)}); correct it there, "
            "or give the set that it was made for"
        ) from error
    paths = Counter(variable.path for variable in model.trainable_variables)
    if repeated := [path for path, count in paths.items() if count > 1]:
        raise UserError(
            f"model {name!r}: two variables are named {repeated[0]}; give their layers different "
            "names"
        )
    if precision == "bfloat16" and not any(
        variable.dtype == precision for variable in model.trainable_variables
    ):
        raise UserError(
            f"model {name!r} has no bfloat16 weights; make its layers with dtype=precision"
        )
    return model


def parameter_count(model: Model) -> int:
    """Returns the number of trainable parameters."""
    return sum(math.prod(variable.shape) for variable in model.trainable_variables)


def model_without_values(hparams: HParams, vocab_size: int, source_vocab_size: int = 0) -> Model:
    """Returns what `make_model` returns, but with variables that have only shapes, no values and no
    memory.
    """
    pending = list(global_state.get_global_attribute("uninitialized_variables") or [])
    try:
        with suppress(UserError), keras.StatelessScope(initialize_variables=False):
            return make_model(hparams, vocab_size, source_vocab_size=source_vocab_size)
    finally:
        # Without this line, Keras would allocate the variables as soon as it builds another model.
        global_state.set_global_attribute("uninitialized_variables", pending)
    # A model that makes a variable from a tensor has values, because Keras refuses such a variable
    # without values.
    return make_model(hparams, vocab_size, source_vocab_size=source_vocab_size)


def as_decoding_model(model: Model, cure: str) -> DecodingModel:
    """Returns `model` as a `DecodingModel`, or raises UserError if a method is missing.

    `cure` says what the user can do with a model that cannot decode, in the imperative.
    """
    if model.missing_methods:
        raise UserError(
            f"model {model.name!r} has no method {model.missing_methods[0]}, so it cannot decode; "
            f"{cure}, or add {', '.join(model.missing_methods)} (docs/write_your_own_model.md)"
        )
    return cast(DecodingModel, model)
