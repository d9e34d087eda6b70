"""Tests which models OpenNMT-tf's model_description.py describes, and that it never runs."""

from pathlib import Path
from typing import Any

import pytest

from t2t_repro.opennmt_tf.description import read_description
from user_errors import user_error

CATALOG = 'from opennmt import models\nmodel = lambda: models.get_model_from_catalog("{}")\n'
CALL = "import opennmt, tensorflow as tf\nmodel = lambda: opennmt.models.Transformer({})\n"
CLASS = """
import opennmt as onmt
class Mine(onmt.models.Transformer):
    def __init__(self):
        embedder = onmt.inputters.WordEmbedder(64, dropout=0.3)
        super().__init__(embedder, num_layers=2, num_heads=4, {})
def model():
    return Mine()
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CATALOG.format("TransformerBase"), {"num_heads": 8, "pos": "timing"}),
        (CATALOG.format("TransformerBigRelative"), {"num_heads": 16, "pos": "none"}),
        (CALL.format(""), {"num_heads": 8, "pos": "timing"}),
        (
            CALL.format("ffn_dropout=0, num_heads=2"),
            {"num_heads": 2, "pos": "timing", "relu_dropout": 0.0},
        ),
        (
            CLASS.format("ffn_activation=tf.nn.silu"),
            {"num_heads": 4, "pos": "timing", "activation": "swish"},
        ),
        (CLASS.format("position_encoder_class=None"), {"num_heads": 4, "pos": "none"}),
        (
            "import opennmt\nmodel = opennmt.models.TransformerBig\n",
            {"num_heads": 16, "pos": "timing"},
        ),
        (
            "model = partial(onmt.models.Transformer, num_heads=4)\n",
            {"num_heads": 4, "pos": "timing"},
        ),
        (
            "class Mine(Transformer):\n    pass\nmodel = lambda: Mine(num_heads=4)\n",
            {"num_heads": 4, "pos": "timing"},
        ),
    ],
)
def test_the_features_that_weights_do_not_show(
    text: str, expected: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "model_description.py").write_text(text + "open('ran', 'w')\n")
    assert read_description(tmp_path / "model_description.py") == expected
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (CATALOG.format("LuongAttention"), ["LuongAttention"]),
        ("model = lambda: onmt.models.SequenceToSequence(a)", ["SequenceToSequence"]),
        (CALL.format("ffn_activation=tf.nn.tanh"), ["ffn_activation='tanh'", "gelu"]),
        (
            CALL.format("position_encoder_class=PositionEmbedder"),
            ["position_encoder_class='PositionEmbedder'"],
        ),
        (CALL.format("num_heads=2 * HEADS"), [":2: num_heads", "number"]),
        (CALL.format("num_heads=True"), ["num_heads=True"]),
        (CALL.format("None, None, 6, 512, 4"), ["single call"]),
        (CALL.format("**settings"), ["settings"]),
        (CALL.format("*settings"), ["single call"]),
        ("if a:\n" + 2 * " model = lambda: Transformer(num_heads=4)\n", ["single call"]),
        ("", ["no model"]),
        ("model = (", ["not a Python file"]),
        ("(" * 10**5, ["not a Python file"]),
        (CALL.format(r"dropout='\n'"), [r"dropout='\n'"]),
    ],
)
def test_another_model_is_refused_by_name(text: str, words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "model_description.py"
    assert str(path) in user_error(read_description, path)  # the file is missing
    path.write_text(text)
    message = user_error(read_description, path)
    assert message.startswith(str(path)) and all(word in message for word in words)
