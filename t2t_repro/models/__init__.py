"""The built-in models. Each function imports Keras only when it is called, so that --registry_help stays fast."""

from __future__ import annotations

from typing import Any

from t2t_repro import registry
from t2t_repro.hparam import HParams


@registry.register_model
def transformer(
    hparams: HParams, vocab_size: int, target_space_id: int = 0, precision: str = "float32", source_vocab_size: int = 0
) -> Any:
    """The Transformer: an encoder and a decoder made of attention (Vaswani et al. 2017, section 3)."""
    from t2t_repro.models.transformer import Transformer

    return Transformer(hparams, vocab_size, target_space_id, precision, source_vocab_size)


@registry.register_model
def transformer_moe(
    hparams: HParams, vocab_size: int, target_space_id: int = 0, precision: str = "float32", source_vocab_size: int = 0
) -> Any:
    """The Transformer with experts in the middle layer of each stack (Shazeer et al. 2017)."""
    from t2t_repro.models.transformer_moe import TransformerMoe

    return TransformerMoe(hparams, vocab_size, target_space_id, precision, source_vocab_size)


@registry.register_model
def convs2s(
    hparams: HParams, vocab_size: int, target_space_id: int = 0, precision: str = "float32", source_vocab_size: int = 0
) -> Any:
    """ConvS2S: gated convolutions, and attention in each decoder layer (Gehring et al. 2017, section 3)."""
    from t2t_repro.models.convs2s import ConvS2S

    return ConvS2S(hparams, vocab_size, target_space_id, precision, source_vocab_size)


@registry.register_model
def gnmt(
    hparams: HParams, vocab_size: int, target_space_id: int = 0, precision: str = "float32", source_vocab_size: int = 0
) -> Any:
    """Google's NMT system: deep LSTM stacks with residual connections and additive attention (Wu et al. 2016)."""
    from t2t_repro.models.gnmt import GNMT

    return GNMT(hparams, vocab_size, precision, source_vocab_size)


@registry.register_model
def bytenet(
    hparams: HParams, vocab_size: int, target_space_id: int = 0, precision: str = "float32", source_vocab_size: int = 0
) -> Any:
    """ByteNet: a decoder of dilated, masked convolutions on top of an encoder (Kalchbrenner et al. 2016)."""
    from t2t_repro.models.bytenet import ByteNet

    return ByteNet(hparams, vocab_size, target_space_id, precision, source_vocab_size)


@registry.register_model
def deep_att(
    hparams: HParams, vocab_size: int, target_space_id: int = 0, precision: str = "float32", source_vocab_size: int = 0
) -> Any:
    """Deep-Att: LSTM layers of alternating directions with fast-forward connections (Zhou et al. 2016)."""
    from t2t_repro.models.deep_att import DeepAtt

    return DeepAtt(hparams, vocab_size, precision, source_vocab_size)
