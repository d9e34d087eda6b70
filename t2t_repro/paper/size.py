"""A model's number of parameters, and the operations of a training step: counted, without memory
for weights.

Operations are matrix products and convolutions in TensorFlow's graph of the model. A product of
matrices [m, k] and [k, n] has m * k * n multiplications, and the same number of additions.
"""

import dataclasses
import functools
import math
from typing import Any

import keras
import tensorflow as tf

from t2t_repro.hparam import HParams
from t2t_repro.models.model import model_without_values, parameter_count

BACKWARD = 2
"""Number of matrix products in the backward pass for each product in the forward pass: one gradient
per factor.
"""


def parameters(hparams: HParams, vocab_size: int) -> int:
    """Returns the number of trainable parameters. Source and target share the vocabulary."""
    return parameter_count(_model(hparams, vocab_size))


def _model(hparams: HParams, vocab_size: int) -> Any:
    """Returns a model without values and without dropout, which has no products: its graph is made
    in less time.
    """
    rates: dict[str, Any] = {name: 0.0 for name in vars(hparams) if name.endswith("_dropout")}
    return _built(dataclasses.replace(hparams, **rates, label_smoothing=0.0), vocab_size)


_built = functools.cache(model_without_values)


def step_flops(hparams: HParams, vocab_size: int, source_length: int, target_length: int) -> int:
    """Returns the number of operations in all matrix products of a training step, forward and
    backward.

    Other operations and padding do not count. Sources and targets share a vocabulary of
    `vocab_size`, and have equal lengths in all sentences. The number of sentences is
    hparams.batch_size / target_length.
    """
    sentence = multiplications(hparams, vocab_size, source_length, target_length)
    return round(2 * sentence * (1 + BACKWARD) * hparams.batch_size / target_length)


@functools.cache
def multiplications(
    hparams: HParams, vocab_size: int, source_length: int, target_length: int
) -> int:
    """Returns the number of multiplications of the forward pass for a sentence pair."""
    model = _model(hparams, vocab_size)
    variables = model.trainable_variables
    with tf.__internal__.FuncGraph("forward").as_default() as graph:
        values = [
            tf.compat.v1.placeholder(variable.dtype, variable.shape) for variable in variables
        ]
        inputs = tf.compat.v1.placeholder("int64", [1, source_length])
        targets = tf.compat.v1.placeholder("int64", [1, target_length])
        examples = tf.compat.v1.placeholder("uint32", [1])
        with keras.StatelessScope(zip(variables, values, strict=True)):
            model(inputs, targets, examples)
    return _multiplications(graph)


def _multiplications(graph: Any) -> int:
    """Returns the number of multiplications of a TensorFlow graph, in which each pass through a
    loop counts.
    """
    total = 0
    for operation in graph.get_operations():
        if "MatMul" in operation.type:
            transposed = "transpose_a" if operation.type == "MatMul" else "adj_x"
            *_, rows, columns = operation.inputs[0].shape
            summed = rows if operation.get_attr(transposed) else columns
            total += operation.outputs[0].shape.num_elements() * summed
        elif "Conv" in operation.type:
            # The kernel's height, width and numbers of input and output channels.
            *window, _ = operation.inputs[1].shape
            total += operation.outputs[0].shape.num_elements() * math.prod(window)
        elif operation.type in ("While", "StatelessWhile"):
            # A loop of ops.scan, which reads an element of a list at each pass.
            inputs = [tensor.op for tensor in operation.inputs]
            passes = max(
                op.inputs[0].shape[0] for op in inputs if op.type == "TensorListFromTensor"
            )
            body = graph._get_function(operation.get_attr("body").name).graph
            total += passes * _multiplications(body)
    return total
