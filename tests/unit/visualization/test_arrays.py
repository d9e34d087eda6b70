"""Tests the files of attention weights for other programs."""

import io
import json

import numpy as np

from attentions import random_attention
from t2t_repro.visualization.arrays import as_json, bertviz, npz
from t2t_repro.visualization.attention import START

NUMBERS = ((4, 5), (1, 2, 3))
KINDS = {
    "encoder": random_attention("encoder", "▁é dog </s>", "▁é dog </s>", *NUMBERS),
    "decoder": random_attention("decoder", "▁der Hund er </s>", f"{START} ▁der Hund er", *NUMBERS),
    "cross": random_attention("cross", "▁der Hund er </s>", "▁é dog </s>", *NUMBERS),
}


def test_npz_and_json_have_tokens_numbers_and_weights() -> None:
    arrays = np.load(io.BytesIO(npz(KINDS)))
    objects = json.loads(as_json(KINDS))
    assert list(objects) == list(KINDS) and len(arrays.files) == 15
    for kind, expected in KINDS.items():
        for field in ("queries", "keys", "layers", "heads"):
            assert (
                tuple(objects[kind][field])
                == tuple(arrays[f"{kind}_{field}"].tolist())
                == getattr(expected, field)
            )
        np.testing.assert_array_equal(arrays[f"{kind}_weights"], expected.weights)
        np.testing.assert_allclose(objects[kind]["weights"], expected.weights, rtol=1e-6)


def test_bertviz_gets_its_arguments() -> None:
    arrays = np.load(io.BytesIO(bertviz(KINDS)))
    assert {name: array.shape for name, array in arrays.items()} == {
        "encoder_attention": (2, 1, 3, 3, 3),
        "decoder_attention": (2, 1, 3, 4, 4),
        "cross_attention": (2, 1, 3, 4, 3),
        "encoder_tokens": (3,),
        "decoder_tokens": (4,),
    }
    # What the decoder reads.
    assert arrays["decoder_tokens"].tolist() == [START, "▁der", "Hund", "er"]
    np.testing.assert_array_equal(arrays["cross_attention"][:, 0], KINDS["cross"].weights)
