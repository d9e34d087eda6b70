"""The paper's Table 3: variations on base, trained on WMT EN-DE and scored on newstest2013.

The sets have tensor2tensor's names and the paper's values. Each set is transformer_base with the
changes that its row of the table names. Models of these sets decode with the last checkpoint
instead of an average. `t2t-paper --table=3` prints the table.
"""

from dataclasses import replace
from typing import Any

from t2t_repro import registry
from t2t_repro.hparam import HParams
from t2t_repro.hparams.transformer import transformer_base

VARIATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "h1": ("A: 1 head of width 512", {"num_heads": 1}),
    "h4": ("A: 4 heads of width 128", {"num_heads": 4}),
    "h16": ("A: 16 heads of width 32", {"num_heads": 16}),
    "h32": ("A: 32 heads of width 16", {"num_heads": 32}),
    "k128": (
        "B: keys of width 16 (128 over all heads), values of width 64",
        {"attention_key_channels": 128},
    ),
    "k256": (
        "B: keys of width 32 (256 over all heads), values of width 64",
        {"attention_key_channels": 256},
    ),
    "l2": ("C: 2 layers", {"num_hidden_layers": 2}),
    "l4": ("C: 4 layers", {"num_hidden_layers": 4}),
    "l8": ("C: 8 layers", {"num_hidden_layers": 8}),
    "hs256": ("C: width 256, heads of width 32", {"hidden_size": 256}),
    "hs1024": ("C: width 1,024, heads of width 128", {"hidden_size": 1024}),
    "ff1024": ("C: inner width 1,024", {"filter_size": 1024}),
    "ff4096": ("C: inner width 4,096", {"filter_size": 4096}),
    "dr0": ("D: no dropout", {"layer_prepostprocess_dropout": 0.0}),
    "dr2": ("D: dropout 0.2", {"layer_prepostprocess_dropout": 0.2}),
    "ls0": ("D: no label smoothing", {"label_smoothing": 0.0}),
    "ls2": ("D: label smoothing 0.2", {"label_smoothing": 0.2}),
    "pos_emb": ("E: learned positions instead of sinusoids", {"pos": "emb"}),
}
"""For each set, by its name without "transformer_": the row of Table 3, and the hparams that differ
from base.
"""


def _register(name: str, row: str, changes: dict[str, Any]) -> None:
    def make() -> HParams:
        return replace(transformer_base(), num_last_checkpoints=1, **changes)

    make.__qualname__ = name
    make.__doc__ = f"Table 3, row {row}."
    registry.register_hparams(name)(make)


for _name, (_row, _changes) in VARIATIONS.items():
    _register(f"transformer_{_name}", _row, _changes)
