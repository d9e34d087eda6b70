"""The paper's Table 3: variations on base, trained on WMT EN-DE, scored on newstest2013.

Names are tensor2tensor's, values the paper's. Batch, steps and the rest are base's; none of the rows averages
checkpoints. Perplexities are per word-piece and BLEU is on newstest2013, as the paper reports them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from t2t_repro import registry
from t2t_repro.hparam import HParams
from t2t_repro.hparams.transformer import transformer_base


def variation(**changes: Any) -> HParams:
    """Base with changes, as a row of Table 3."""
    return replace(transformer_base(), num_last_checkpoints=1, **changes)


@registry.register_hparams
def transformer_h1() -> HParams:
    """Table 3, row A: one head of width 512; perplexity 5.29, BLEU 24.9."""
    return variation(num_heads=1)


@registry.register_hparams
def transformer_h4() -> HParams:
    """Table 3, row A: 4 heads of width 128; perplexity 5.00, BLEU 25.5."""
    return variation(num_heads=4)


@registry.register_hparams
def transformer_h16() -> HParams:
    """Table 3, row A: 16 heads of width 32; perplexity 4.91, BLEU 25.8."""
    return variation(num_heads=16)


@registry.register_hparams
def transformer_h32() -> HParams:
    """Table 3, row A: 32 heads of width 16; perplexity 5.01, BLEU 25.4."""
    return variation(num_heads=32)


@registry.register_hparams
def transformer_k128() -> HParams:
    """Table 3, row B: keys of width 16 (128 in all), values of 64; perplexity 5.16, BLEU 25.1, 58 M parameters."""
    return variation(attention_key_channels=128)


@registry.register_hparams
def transformer_k256() -> HParams:
    """Table 3, row B: keys of width 32 (256 in all), values of 64; perplexity 5.01, BLEU 25.4, 60 M parameters."""
    return variation(attention_key_channels=256)


@registry.register_hparams
def transformer_l2() -> HParams:
    """Table 3, row C: 2 layers; perplexity 6.11, BLEU 23.7, 36 M parameters."""
    return variation(num_hidden_layers=2)


@registry.register_hparams
def transformer_l4() -> HParams:
    """Table 3, row C: 4 layers; perplexity 5.19, BLEU 25.3, 50 M parameters."""
    return variation(num_hidden_layers=4)


@registry.register_hparams
def transformer_l8() -> HParams:
    """Table 3, row C: 8 layers; perplexity 4.88, BLEU 25.5, 80 M parameters."""
    return variation(num_hidden_layers=8)


@registry.register_hparams
def transformer_hs256() -> HParams:
    """Table 3, row C: width 256, heads of width 32; perplexity 5.75, BLEU 24.5, 28 M parameters."""
    return variation(hidden_size=256)


@registry.register_hparams
def transformer_hs1024() -> HParams:
    """Table 3, row C: width 1,024, heads of width 128; perplexity 4.66, BLEU 26.0, 168 M parameters."""
    return variation(hidden_size=1024)


@registry.register_hparams
def transformer_ff1024() -> HParams:
    """Table 3, row C: inner width 1,024; perplexity 5.12, BLEU 25.4, 53 M parameters."""
    return variation(filter_size=1024)


@registry.register_hparams
def transformer_ff4096() -> HParams:
    """Table 3, row C: inner width 4,096; perplexity 4.75, BLEU 26.2, 90 M parameters."""
    return variation(filter_size=4096)


@registry.register_hparams
def transformer_dr0() -> HParams:
    """Table 3, row D: no dropout; perplexity 5.77, BLEU 24.6."""
    return variation(layer_prepostprocess_dropout=0.0)


@registry.register_hparams
def transformer_dr2() -> HParams:
    """Table 3, row D: dropout 0.2; perplexity 4.95, BLEU 25.5."""
    return variation(layer_prepostprocess_dropout=0.2)


@registry.register_hparams
def transformer_ls0() -> HParams:
    """Table 3, row D: no label smoothing; perplexity 4.67, BLEU 25.3."""
    return variation(label_smoothing=0.0)


@registry.register_hparams
def transformer_ls2() -> HParams:
    """Table 3, row D: label smoothing 0.2; perplexity 5.47, BLEU 25.7."""
    return variation(label_smoothing=0.2)


@registry.register_hparams
def transformer_pos_emb() -> HParams:
    """Table 3, row E: learned positions in place of sinusoids; perplexity 4.92, BLEU 25.7."""
    return variation(pos="emb")
