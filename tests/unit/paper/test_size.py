"""Compares counted parameters and operations with real models, and with a sum by hand."""

from dataclasses import replace

import keras

from decoding_models import FAMILIES, VOCAB
from t2t_repro.hparam import HParams
from t2t_repro.paper import size

TINY = FAMILIES["transformer"]


def test_counting_allocates_no_memory_now_or_later() -> None:
    width = 2**20
    hparams = replace(TINY, hidden_size=width, filter_size=width)
    assert size.parameters(hparams, VOCAB) > 4 * 2 * width * width
    with keras.StatelessScope():  # at its end, Keras allocates all variables that wait for it
        pass


def test_operations_equal_a_sum_by_hand() -> None:
    hparams = HParams(
        num_hidden_layers=1, hidden_size=4, filter_size=10, num_heads=1, attention_key_channels=2,
        attention_value_channels=6, batch_size=10,
    )  # fmt: skip
    # (m, k, n) of the products [m, k] x [k, n]: projections of q, k and v; q k^T, weights times v,
    # output projection; feed-forward network
    encoder = [
        (3, 4, 2), (3, 4, 2), (3, 4, 6), (3, 2, 3), (3, 3, 6), (3, 6, 4),
        (3, 4, 10), (3, 10, 4),
    ]  # fmt: skip
    decoder = [
        (5, 4, 2), (5, 4, 2), (5, 4, 6), (5, 2, 5), (5, 5, 6), (5, 6, 4),
        (5, 4, 2), (3, 4, 2), (3, 4, 6), (5, 2, 3), (5, 3, 6), (5, 6, 4),
        (5, 4, 10), (5, 10, 4),
        (5, 4, 11),  # logits of the 11 entries of the vocabulary
    ]  # fmt: skip
    forward = sum(2 * m * k * n for m, k, n in encoder + decoder)
    assert size.step_flops(hparams, 11, 3, 5) == 2 * 3 * forward
    assert size.step_flops(replace(hparams, batch_size=1000), 11, 3, 5) == 200 * 3 * forward
