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
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, cast, runtime_checkable

import keras
import numpy as np
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
    """True if `decode` and `decode_step` can return attention weights, see `return_attention`."""
    is_normalized: bool
    """True if the model returns log-probabilities instead of logits."""
    missing_methods: tuple[str, ...]
    """Methods of `DecodingModel` that this model does not have; empty if the model can decode."""

    @property
    def trainable_variables(self) -> list[Any]:
        """The weights, as keras.Variables with unique paths."""

    @property
    def losses(self) -> list[Tensor]:
        """Losses, float32 [], that the last call adds to the training loss, as Keras's `add_loss`.

        The training step weights them by the micro-batch's share of the step's target tokens, and
        adds them to the cross-entropy per token. So a loss that is not a sum over examples depends
        on how a step is cut into micro-batches.
        """

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

    def decode(self, targets: Tensor, memory: Any, return_attention: bool = False) -> Any:
        """Returns the logits [B, T, V] of all positions, as `__call__` does.

        On request, it returns a tuple of the logits and a list with a dict for each decoder layer,
        whose "cross" are the cross-attention weights [B, H, T, S]. Callers request them only if
        `has_attention` is True.
        """

    def start(self, hypotheses: Tensor) -> Any:
        """Returns the empty cache for `hypotheses` (B * K) hypotheses."""

    def decode_step(
        self, ids: Tensor, t: Tensor, cache: Any, memory: Any, return_attention: bool = False
    ) -> Any:
        """Returns the logits [B, K, V] of position t, which is 0 at first, and the new cache.

        `ids` [B, K] has the token of each hypothesis at position t - 1, or 0 if t is 0. On request,
        the third result is a list as that of `decode`, with weights [B, H, K, S].
        """


UNINITIALIZED = "uninitialized_variables"
"""Keras's name of its list of the variables that have no value yet."""
DECODING_METHODS = ("encode", "decode", "start", "decode_step")


class KerasModel:
    """A Keras model with the interface of `Model`, and with that of `DecodingModel` if the Keras
    model can decode.

    `model` is any Keras model or layer with `call(inputs, targets)`. `call` may also take `seed`
    and `training`.
    """

    def __init__(self, model: Any, name: str, vocab_size: int) -> None:
        self.layer = model
        self.name = name
        call = getattr(model, "call", None)
        parameters = inspect.signature(call).parameters if callable(call) else {}
        if len(parameters) < 2:
            raise UserError(
                f"model {name!r} has no method call(inputs, targets); see "
                "docs/write_your_own_model.md"
            )
        self._takes_seed = "seed" in parameters
        self._takes_training = "training" in parameters
        self.missing_methods = tuple(
            name for name in DECODING_METHODS if not callable(getattr(model, name, None))
        )
        self.encode = getattr(model, "encode", None)
        self.start = getattr(model, "start", None)
        self.has_attention = not self.missing_methods and all(
            "return_attention" in inspect.signature(method).parameters
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

    @property
    def losses(self) -> list[Tensor]:
        """The losses that the Keras model's last call added with `add_loss`."""
        return cast(list[Tensor], self.layer.losses)

    def __call__(self, inputs: Tensor, targets: Tensor, seed: Tensor | None = None) -> Tensor:
        """Returns the logits [B, T, V]; see `Model`."""
        options: dict[str, Any] = {}
        if self._takes_seed:
            options["seed"] = seed
        if self._takes_training:
            options["training"] = seed is not None
        return float32(self.layer(inputs, targets, **options))

    def decode(self, targets: Tensor, memory: Any, **return_attention: bool) -> Any:
        """Returns the logits [B, T, V]; see `DecodingModel`."""
        if not return_attention:
            return float32(self.layer.decode(targets, memory))
        logits, attention = self.layer.decode(targets, memory, **return_attention)
        return float32(logits), attention

    def decode_step(
        self, ids: Tensor, t: Tensor, cache: Any, memory: Any, **return_attention: bool
    ) -> Any:
        """Returns the logits [B, K, V] and the new cache; see `DecodingModel`."""
        results = self.layer.decode_step(ids, t, cache, memory, **return_attention)
        return float32(results[0]), *results[1:]


def make_model(
    hparams: HParams,
    vocab_size: int,
    target_space_id: int = 0,
    precision: str = "float32",
    source_vocab_size: int = 0,
) -> Model:
    """Returns the model named by `hparams.model`, with all its variables.

    The arguments are those of `models.variants.transformer`; `precision` is its dtype.

    Raises UserError if the model is unknown, cannot be made with these arguments, or breaks a rule
    of the page docs/write_your_own_model.md.
    """
    # Keras numbers unnamed layers and continues the numbers from model to model. Without this
    # reset, variable names would depend on the models that the process made earlier.
    reset_uids()
    hparams = registry.for_model(hparams)
    name = hparams.model
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
        is_model = isinstance(registered, Model)
        model = registered if is_model else KerasModel(registered, name, vocab_size)
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


def model_without_values(*arguments: Any, **options: Any) -> Model:
    """Returns what `make_model` returns, with variables that have only shapes, and no memory."""
    model, _ = _without_values(*arguments, **options)
    return model


def model_with_weights(
    weights: dict[str, np.ndarray], check: Callable[[Model], None], *arguments: Any, **options: Any
) -> Model:
    """Returns what `make_model` returns, with these weights, by the paths of the variables.

    `check` may raise an error if a model without values does not fit the weights.
    """
    model, without_value = _without_values(*arguments, **options)
    check(model)
    for variable in model.trainable_variables:
        value = weights[variable.path]
        if without_value:
            # No random numbers are drawn, and there is never a second copy of the weights.
            variable._initializer = partial(_stored, value)
        else:
            variable.assign(value)
    for variable in without_value:
        variable._deferred_initialize()
    return model


def _stored(value: np.ndarray, shape: tuple[int, ...], dtype: str) -> Tensor:
    return ops.convert_to_tensor(value, dtype)


def _without_values(*arguments: Any, **options: Any) -> tuple[Model, list[Any]]:
    """Returns a model, and its variables without values; if there are none, all have values."""
    pending = list(global_state.get_global_attribute(UNINITIALIZED) or [])
    try:
        with suppress(UserError), keras.StatelessScope(initialize_variables=False):
            model = make_model(*arguments, **options)
            variables = list(global_state.get_global_attribute(UNINITIALIZED) or [])
            return model, variables[len(pending) :]
    finally:
        # Without this line, Keras would allocate the variables as soon as it builds another model.
        global_state.set_global_attribute(UNINITIALIZED, pending)
    # A model that makes a variable from a tensor has values, because Keras refuses such a variable
    # without values.
    return make_model(*arguments, **options), []


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
