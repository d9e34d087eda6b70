"""Measures how long a product of matrices takes in float32 and in bfloat16, in CPU milliseconds on
one thread.

    python benchmarks/bfloat16_products.py

ONEDNN_MAX_CPU_ISA=AVX512_CORE makes TensorFlow compute as on a processor that has AVX-512, but no
instructions for bfloat16. With TF_ENABLE_ONEDNN_OPTS=0, it multiplies in bfloat16 as on a processor
without AVX-512. The results are in docs/decoding.md.
"""

from __future__ import annotations

import time

import tensorflow as tf

from spread import spread

SHAPES = ((512, 512, 2048), (128, 512, 8000))
"""The products [m, k] @ [k, n], as (m, k, n): a layer of the base model in training; logits of 128
hypotheses.
"""
REPETITIONS = 15


def milliseconds(m: int, k: int, n: int, dtype: tf.DType) -> list[float]:
    """Returns the CPU milliseconds of repeated products of random matrices [m, k] and [k, n]."""
    product = tf.function(tf.linalg.matmul)
    x = tf.cast(tf.random.normal([m, k]), dtype)
    y = tf.cast(tf.random.normal([k, n]), dtype)
    product(x, y)
    times = []
    for _ in range(REPETITIONS):
        start = time.process_time()
        product(x, y).numpy()
        times.append(1000 * (time.process_time() - start))
    return times


def main() -> None:
    """Prints a line for each product and dtype."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    for shape in SHAPES:
        for dtype in (tf.float32, tf.bfloat16):
            print(f"{shape} {dtype.name}: {spread(milliseconds(*shape, dtype))} ms")


if __name__ == "__main__":
    main()
