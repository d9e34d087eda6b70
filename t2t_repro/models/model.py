"""The interface between a model and training, decoding and serving, and the one check of a registered model.

`Model` trains and scores. `DecodingModel` also writes text. `make_model` returns an object that has this interface,
whatever was registered: the Transformer has it already, and `KerasModel` gives it to an ordinary keras.Model.

Shapes: B batch, S source length, T target length, t positions decoded so far, K hypotheses of a sentence, H heads,
V vocabulary. Ids are 0 for padding, 1 for the end of a text.
"""

from __future__ import annotations

import inspect
import math
import traceback
from collections import Counter
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

from keras import ops
from keras.src.utils.naming import reset_uids

from t2t_repro import registry
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams
from t2t_repro.layers.attention import KeysValues
from t2t_repro.layers.base import float32

Tensor = Any


class Memory(NamedTuple):
    """Keys and values that the Transformer's decoder attends to."""

    bias: Tensor
    """[B, 1, 1, S]: 0 for tokens, a large negative number for padding."""
    layers: tuple[KeysValues, ...]
    """For each decoder layer, keys [B, H, S, d_k] and values [B, H, S, d_v]."""


Cache = tuple[KeysValues, ...]
"""The Transformer's key/value cache: for each decoder layer, keys [B * K, H, t, d_k] and values [B * K, H, t, d_v] of
the positions decoded so far. Restricted self-attention keeps only the last positions, those within its reach."""


@runtime_checkable
class Model(Protocol):
    """A model that trains and scores."""

    name: str
    has_attention: bool
    """True if `decode` and `decode_step` take `save_weights_to`."""
    is_normalized: bool
    """True if outputs are log-probabilities, false if they are logits."""
    missing_methods: tuple[str, ...]
    """Methods that decoding needs and the model lacks; empty for a `DecodingModel`."""

    @property
    def trainable_variables(self) -> list[Any]:
        """The weights, as keras.Variables with unique paths."""

    def __call__(self, inputs: Tensor, targets: Tensor, seed: Tensor | None = None) -> Tensor:
        """Returns float32 logits [B, T, V]; the logits of a position depend only on the targets before it.

        Args:
            inputs: source ids [B, S].
            targets: target ids [B, T].
            seed: int32 [2] that decides all dropout; None outside training.
        """


class DecodingModel(Model, Protocol):
    """A model that also decodes.

    Memory and cache may be any tensors, nested in tuples, lists, dicts and NamedTuples. The first dimension is B in the
    memory and B * K in the cache, because the search drops finished sentences and reorders hypotheses.
    """

    def encode(self, inputs: Tensor) -> Any:
        """Returns the memory of source ids [B, S]."""

    def decode(self, targets: Tensor, memory: Any, save_weights_to: list | None = None) -> Tensor:
        """Returns the logits [B, T, V] of all positions, as `__call__` does.

        Args:
            save_weights_to: the weights of the cross-attention are appended, [B, H, T, S] for each layer. Passed only
                if `has_attention`.
        """

    def start(self, hypotheses: Tensor) -> Any:
        """Returns the empty cache of B * K hypotheses."""

    def decode_step(
        self, ids: Tensor, t: Tensor, cache: Any, memory: Any, save_weights_to: list | None = None
    ) -> tuple[Tensor, Any]:
        """Returns the logits [B, K, V] of position t, and the cache with that position added.

        Args:
            ids: [B, K], the tokens at position t - 1; 0 at t = 0.
            t: number of positions before this one.
            save_weights_to: as for `decode`, [B, H, K, S] for each layer.
        """


DECODING_METHODS = ("encode", "decode", "start", "decode_step")


class KerasModel:
    """Gives the interface of `Model` to an ordinary Keras model.

    Args:
        model: any Keras model or layer with `call(inputs, targets)`. `call` may also take `seed` and `training`.
        name: the registered name.
        vocab_size: V.

    Raises:
        UserError: the model lacks something or returns no logits.
    """

    def __init__(self, model: Any, name: str, vocab_size: int) -> None:
        self._model, self.name = model, name
        call = getattr(model, "call", None)
        parameters = inspect.signature(call).parameters if callable(call) else {}
        if len(parameters) < 2:
            raise UserError(
                f"model {name!r} has no method call(inputs, targets); add it to the class (docs/models.md shows one)"
            )
        self._takes_seed, self._takes_training = "seed" in parameters, "training" in parameters
        self.missing_methods = tuple(name for name in DECODING_METHODS if not callable(getattr(model, name, None)))
        self.has_attention = not self.missing_methods and all(
            "save_weights_to" in inspect.signature(method).parameters for method in (model.decode, model.decode_step)
        )
        self.is_normalized = bool(getattr(model, "is_normalized", False))
        try:  # most Keras models create their variables at their first call
            logits = self(ops.ones((1, 3), "int32"), ops.ones((1, 2), "int32"))
        except Exception as error:
            raise UserError(f"model {name!r} fails at its first call ({_describe(error)}); correct it there") from error
        if tuple(logits.shape) != (1, 2, vocab_size):
            raise UserError(
                f"model {name!r}: call returned shape {list(logits.shape)} for 2 target tokens; return logits of shape "
                f"[batch, target length, vocabulary], here [1, 2, {vocab_size}]"
            )
        if state := [weight.path for weight in model.non_trainable_variables if "float" in weight.dtype]:
            raise UserError(
                f"model {name!r}: weight {state[0]} is not trained, so checkpoints do not hold it; make it trainable, "
                "or use a layer without such weights"
            )

    @property
    def trainable_variables(self) -> list[Any]:
        """The Keras model's weights."""
        return cast(list[Any], self._model.trainable_variables)

    def __call__(self, inputs: Tensor, targets: Tensor, seed: Tensor | None = None) -> Tensor:
        """Returns logits; see `Model`."""
        options: dict[str, Any] = {}
        if self._takes_seed:
            options["seed"] = seed
        if self._takes_training:
            options["training"] = seed is not None
        return float32(self._model(inputs, targets, **options))

    def encode(self, inputs: Tensor) -> Any:
        """Returns the memory; see `DecodingModel`."""
        return self._model.encode(inputs)

    def decode(self, targets: Tensor, memory: Any, **save_weights_to: list | None) -> Tensor:
        """Returns logits; see `DecodingModel`."""
        return float32(self._model.decode(targets, memory, **save_weights_to))

    def start(self, hypotheses: Tensor) -> Any:
        """Returns the empty cache; see `DecodingModel`."""
        return self._model.start(hypotheses)

    def decode_step(
        self, ids: Tensor, t: Tensor, cache: Any, memory: Any, **save_weights_to: list | None
    ) -> tuple[Tensor, Any]:
        """Returns logits and the longer cache; see `DecodingModel`."""
        logits, cache = self._model.decode_step(ids, t, cache, memory, **save_weights_to)
        return float32(logits), cache


def make_model(hparams: HParams, vocab_size: int, target_space_id: int = 0, precision: str = "float32") -> Model:
    """Returns the model that `hparams` name, with all its variables.

    Raises:
        UserError: the model cannot be made of these hparams, or lacks something; the error names file and line.
    """
    # Keras numbers unnamed layers throughout a process. Variable names must not depend on earlier models.
    reset_uids()
    name = hparams.model
    try:
        registered = registry.model(name)(hparams, vocab_size, target_space_id, precision)
        model = registered if isinstance(registered, Model) else KerasModel(registered, name, vocab_size)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"model {name!r} does not fit the hparams set ({_describe(error)}); correct it there, or give the set that "
            "it was made for"
        ) from error
    paths = Counter(variable.path for variable in model.trainable_variables)
    if repeated := [path for path, count in paths.items() if count > 1]:
        raise UserError(f"model {name!r}: two variables are named {repeated[0]}; give their layers different names")
    return model


def _describe(error: Exception) -> str:
    """Returns the innermost file and line outside of installed libraries, and the error, in one line."""
    frames = traceback.extract_tb(error.__traceback__)
    place = [frame for frame in frames if "site-packages" not in frame.filename][-1]
    message = " ".join(str(error).partition("Arguments received")[0].split())  # Keras adds the arguments of each call
    return f"{place.filename}:{place.lineno}: {type(error).__name__}: {message}"


def parameter_count(model: Model) -> int:
    """Returns the number of trainable parameters."""
    return sum(math.prod(variable.shape) for variable in model.trainable_variables)


def as_decoding_model(model: Model, cure: str) -> DecodingModel:
    """Returns `model` if it can decode.

    Args:
        cure: what the user can do if it cannot, in the imperative.

    Raises:
        UserError: it lacks a method.
    """
    if model.missing_methods:
        raise UserError(
            f"model {model.name!r} has no method {model.missing_methods[0]}, so it cannot decode; "
            f"{cure}, or add {', '.join(model.missing_methods)} (docs/models.md)"
        )
    return cast(DecodingModel, model)
