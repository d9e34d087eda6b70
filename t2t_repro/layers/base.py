"""The base class of all layers, with weights and matrix products in the chosen precision."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from t2t_repro import registry
from t2t_repro.hparam import HParams

# A search begins with one position, which attends only to itself. Keras warns of such a softmax
# over one element.
warnings.filterwarnings("ignore", "You are using a softmax over axis")

Tensor = Any
"""A tensor of the Keras backend, or a numpy array."""

_makes_zeros = False
"""True inside `zero_weights`."""
_uniform_limit = 0.0
"""Above 0 inside `initial_weights` if weights are uniform up to this limit."""


class Layer(keras.layers.Layer):
    """The base class of all layers. A layer creates its weights in its constructor.

    `kwargs` are those of Keras layers: name, dtype, trainable. "mixed_bfloat16" and "mixed_float16"
    compute matrix products in 16 bits. "bfloat16", only for decoding, also stores the weights in 16
    bits.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        keras.saving.register_keras_serializable(cls.__module__)(cls)

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        """Returns a new layer. Keras takes the arguments of the constructor from here for
        `get_config`.
        """
        options = {name: _to_json(value) for name, value in options.items()}
        return super().__new__(cls, *map(_to_json, arguments), **options)

    def __init__(self, **kwargs: Any) -> None:
        # Keras would cast inputs to 16 bits. float16 cannot hold the -1e9 of masks, and residual
        # sums need float32.
        super().__init__(autocast=False, **kwargs)
        self.built = True

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return super().from_config({name: _from_json(value) for name, value in config.items()})

    def add_weight(self, shape: Any = None, initializer: Any = None, **options: Any) -> Any:
        """Returns a new weight; see `keras.layers.Layer.add_weight`, which has the same arguments."""  # noqa: E501
        # Methods cast kernels themselves. The other weights are added to float32 or multiplied by
        # it.
        options = {"autocast": False} | options
        is_random = not isinstance(initializer, str | keras.initializers.Constant)
        if _uniform_limit and is_random:
            initializer = keras.initializers.RandomUniform(-_uniform_limit, _uniform_limit)
        return super().add_weight(shape, "zeros" if _makes_zeros else initializer, **options)

    def fold_weights(self) -> None:
        """Replaces weights by values that each step of decoding would compute from them. This ends
        training.
        """
        for layer in self._flatten_layers(include_self=False, recursive=False):
            if isinstance(layer, Layer):
                layer.fold_weights()

    def product(self, x: Tensor, kernel: Tensor, bias: Tensor | None = None) -> Tensor:
        """Returns x @ kernel + bias [..., E] for x [..., D], kernel [D, E] and bias [E], in the
        compute_dtype.
        """
        # x is flattened to a matrix, because broadcasting the kernel over a batch is several times
        # slower.
        flat = ops.reshape(ops.cast(x, self.compute_dtype), (-1, kernel.shape[0]))
        flat = ops.matmul(flat, ops.cast(kernel, self.compute_dtype))
        flat = flat if bias is None else flat + ops.cast(bias, flat.dtype)
        return ops.reshape(flat, (*outer_shape(x), kernel.shape[1]))

    def kernel(
        self, name: str, width_in: int, widths_out: int | Sequence[int], gain: float = 1.0
    ) -> Any:
        """Returns a new weight [width_in, sum(widths_out)], which holds one kernel for each output
        width, side by side.

        Each kernel [m, n] is drawn uniformly with variance gain * 2 / (m + n), as by Glorot and
        Bengio (2010).
        """
        widths = [widths_out] if isinstance(widths_out, int) else list(widths_out)

        def initialize(shape: tuple[int, ...], dtype: str | None = None) -> Tensor:
            draw = keras.initializers.VarianceScaling
            kernels = [
                draw(gain, "fan_avg", "uniform")((width_in, width), dtype=dtype) for width in widths
            ]
            return ops.concatenate(kernels, axis=1)

        return self.add_weight((width_in, sum(widths)), initialize, name=name)


class Caches:
    """The caches in a step of decoding. Each layer removes the first of `old`, and appends its new
    one to `new`.
    """

    def __init__(self, old: Iterable[Any]) -> None:
        # Keras passes this object on to `call` as it is. It would copy lists and tuples.
        self.old, self.new = list(old), list[Any]()


def _to_json(argument: Any) -> Any:
    if isinstance(argument, HParams):
        return {"hparams": dict(vars(argument))}
    if isinstance(argument, type):
        return {"class": keras.saving.get_registered_name(argument)}
    return (
        keras.saving.serialize_keras_object(argument)
        if hasattr(argument, "get_config")
        else argument
    )


def _from_json(value: Any) -> Any:
    match value:
        case {"hparams": fields}:
            return registry.hparams_class(fields["model"])(**fields)
        case {"class": name}:
            return keras.saving.get_registered_object(name)
    return keras.saving.deserialize_keras_object(value)


class Collector:
    """Collects tensors of layers: inside `with collector() as tensors`, `add` appends to the list
    `tensors`.
    """

    def __init__(self, name: str) -> None:
        self._tensors: ContextVar[list[Tensor] | None] = ContextVar(name, default=None)

    @property
    def tensors(self) -> list[Tensor] | None:
        """The list of this thread's innermost `with` block; None outside."""
        return self._tensors.get()

    def add(self, tensor: Tensor) -> None:
        """Appends a tensor to the list; has no effect outside a `with` block."""
        if self.tensors is not None:
            self.tensors.append(tensor)

    @contextmanager
    def __call__(self, tensors: list[Tensor] | None = None) -> Iterator[list[Tensor]]:
        """Returns the context that yields the list: `tensors`, or by default a new list."""
        tensors = [] if tensors is None else tensors
        token = self._tensors.set(tensors)
        try:
            yield tensors
        finally:
            self._tensors.reset(token)


auxiliary_losses = Collector("auxiliary losses")
"""Collects losses, float32 [], that layers add to the loss of a training step, such as those that
balance experts.

The training step weights a loss by the micro-batch's share of the step's target tokens, and adds it
to the cross-entropy per token. So a loss that is not a sum over examples depends on how a step is
cut into micro-batches.
"""


@contextmanager
def zero_weights() -> Iterator[None]:
    """Makes layers inside a `with` block create their weights as zeros, which saves the time for
    random numbers.
    """
    global _makes_zeros
    _makes_zeros = True
    try:
        yield
    finally:
        _makes_zeros = False


@contextmanager
def initial_weights(hparams: HParams) -> Iterator[None]:
    """Makes layers inside a `with` block draw their random weights from the distribution
    hparams.initializer.
    """
    global _uniform_limit
    is_uniform = getattr(hparams, "initializer", "") == "uniform"
    _uniform_limit = 0.1 * hparams.initializer_gain if is_uniform else 0.0
    try:
        yield
    finally:
        _uniform_limit = 0.0


def outer_shape(x: Tensor) -> tuple:
    """Returns the shape of x [B, ..., D] without D. If only B varies, the tuple has -1 for B, for
    `ops.reshape`.
    """
    # In TensorFlow, a shape with -1 is a constant, but each length that is read from a tensor costs
    # operations.
    lengths = tuple(x.shape[1:-1])
    return tuple(ops.shape(x)[:-1]) if None in lengths else (-1, *lengths)


def parts(x: Tensor, widths: Sequence[int]) -> list[Tensor]:
    """Splits the last dimension of x into parts of the given widths."""
    # For a number of equal parts, Keras makes two operations. For positions, it makes 24, which
    # compute the widths.
    sections = len(widths) if len(set(widths)) == 1 else np.cumsum(widths)[:-1].tolist()
    return list(ops.split(x, sections, axis=-1))


def float32(x: Tensor) -> Tensor:
    """Returns x as float32, because 16 bits are too few for sums, norms and softmaxes."""
    return ops.cast(x, "float32")
