"""The models with which the paper compares the Transformer. Each module imports Keras when its model is made."""

from __future__ import annotations

from t2t_repro.models import register_lazily

for _model in (
    ("transformer_moe", "TransformerMoe", "The Transformer with mixtures of experts (Shazeer et al. 2017)."),
    ("gnmt", "GNMT", "Google's system: deep LSTM stacks with additive attention (Wu et al. 2016)."),
    ("deep_att", "DeepAtt", "LSTM layers of alternating directions with fast-forward connections (Zhou et al. 2016)."),
    ("moe", "MoE", "LSTM stacks with a mixture of experts in each, and attention (Shazeer et al. 2017)."),
    ("convs2s", "ConvS2S", "Gated convolutions, and attention in each decoder layer (Gehring et al. 2017)."),
    ("bytenet", "ByteNet", "Dilated convolutions, the decoder on top of the encoder (Kalchbrenner et al. 2016)."),
):
    register_lazily(__name__, *_model)
