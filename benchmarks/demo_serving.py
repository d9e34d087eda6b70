"""Translates the texts on the command line with an exported SavedModel, without importing this
project's code.

python benchmarks/demo_serving.py demo/model/export/1 "three hundred and forty-two"
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
import tensorflow_text  # noqa: F401, the graph needs its operations

translate = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
result = translate(inputs=tf.constant(sys.argv[2:]))
for text, output, score in zip(
    sys.argv[2:], result["outputs"].numpy(), result["scores"].numpy(), strict=True
):
    print(f"{text} -> {output.decode()} ({score:.3f})")
