"""Attention weights as files of numbers: NumPy's npz, JSON, and the arguments of BertViz's views.

Shapes: L layers, H heads, Q queries, K keys, S source tokens, T target tokens.
"""

import io
from collections.abc import Callable, Mapping

import numpy as np

from t2t_repro.files.json_file import to_json_line
from t2t_repro.visualization.attention import START, Attention

FIELDS = ("queries", "keys", "layers", "heads", "weights")


def npz(kinds: Mapping[str, Attention]) -> bytes:
    """Returns an npz file. Its arrays are named by kind and field, such as encoder_weights [L, H,
    Q, K].
    """
    arrays = {}
    for kind, attention in kinds.items():
        for field in FIELDS:
            arrays[f"{kind}_{field}"] = getattr(attention, field)
    return _npz(arrays)


def as_json(kinds: Mapping[str, Attention]) -> bytes:
    """Returns a JSON file: for each kind, an object with the values of `FIELDS` by name."""
    objects = {}
    for kind, attention in kinds.items():
        objects[kind] = {field: getattr(attention, field) for field in FIELDS}
        objects[kind]["weights"] = attention.weights.tolist()
    return f"{to_json_line(objects)}\n".encode()


def bertviz(kinds: Mapping[str, Attention]) -> bytes:
    """Returns an npz file whose arrays are the arguments of BertViz's head_view and model_view, by
    name.

    The weights have a batch of one: encoder_attention [L, 1, H, S, S], decoder_attention [L, 1, H,
    T, T] and cross_attention [L, 1, H, T, S]. BertViz labels a position of the decoder with the
    token that the decoder reads there. So decoder_tokens begin with `START` and lack the last
    token.
    """
    arrays: dict[str, object] = {
        f"{kind}_attention": kinds[kind].weights[:, None] for kind in kinds
    }
    if "decoder" in kinds or "cross" in kinds:
        targets = (kinds.get("decoder") or kinds["cross"]).queries
        arrays["decoder_tokens"] = (START, *targets[:-1])
    if "encoder" in kinds or "cross" in kinds:
        arrays["encoder_tokens"] = (kinds.get("encoder") or kinds["cross"]).keys
    return _npz(arrays)


def _npz(arrays: Mapping[str, object]) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **{name: np.asarray(array) for name, array in arrays.items()})  # type: ignore[arg-type]
    return file.getvalue()


WRITERS: dict[str, tuple[str, Callable[[Mapping[str, Attention]], bytes]]] = {
    "npz": ("attention.npz", npz),
    "json": ("attention.json", as_json),
    "bertviz": ("bertviz.npz", bertviz),
}
"""For each format: the name of its file, and the function that returns the file's contents."""
