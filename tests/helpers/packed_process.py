"""Checks packed kernels in a process of its own, because TensorFlow reads the environment variable for them only once.

Usage: python packed_process.py FOLDER PRECISION ... With the model in FOLDER, whose kernels all count as large, it
compares the scores of packed and of unpacked kernels in each precision. Then it sets a kernel to 0, and prints "kept"
if the scores stay the same, because TensorFlow still multiplies with the packed kernels.
"""

from __future__ import annotations

import sys

import numpy as np

from t2t_repro import devices
from t2t_repro.decoding import Translator
from t2t_repro.layers import base

TEXTS = ["a cat sat on the dog", "the dog", "cat", *["the cat sat on a dog and the cat"] * 9]


def scores(translator: Translator, texts: list[str]) -> list[float]:
    """Returns the scores of all outputs."""
    return [output.score for translation in translator.translate(texts) for output in translation.hypotheses]


def main(folder: str, *precisions: str) -> None:
    """Compares batches with different numbers of vectors. Two batches run at the same time."""
    base.LARGE_KERNEL = 1
    devices.set_threads(1, 2)
    for precision in precisions:
        tolerance = 1e-4 if precision == "float32" else 0.05
        packed, plain = (
            Translator.from_dir(folder, precision=precision, packs_kernels=packs, extra_length=3, n=2, batch_size=50)
            for packs in (True, False)
        )
        for texts in (TEXTS[:1], TEXTS[1:2], TEXTS, TEXTS[:3]):
            np.testing.assert_allclose(scores(packed, texts), scores(plain, texts), atol=tolerance)
        before = scores(packed, TEXTS[:1])
        for variable in packed.model.trainable_variables:
            if variable.path.endswith("decoder/layer_0/feed_forward/kernel1"):
                variable.assign(np.zeros(variable.shape))
        print(precision, "kept" if scores(packed, TEXTS[:1]) == before else "read again")


if __name__ == "__main__":
    main(*sys.argv[1:])
