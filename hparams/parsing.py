"""The paper's parsers (section 6.3, Table 4): four layers of width 1,024, otherwise like base.

The paper tuned dropout, learning rate and beam size on section 22 but prints only the beam size; the rest is base's.
Dropouts, warmup and maximum length are therefore those of tensor2tensor's parsing sets. The learning rate's constant is
1, as in equation 3 and in base. (tensor2tensor's parsing sets set a learning_rate too, but it had no effect on their
schedule, and its later versions of base use 2.) Like base, the parsers average the last five checkpoints.
"""

from __future__ import annotations

from dataclasses import replace

from t2t_repro import registry
from t2t_repro.hparam import HParams
from t2t_repro.hparams.transformer import transformer_base


@registry.register_hparams
def transformer_parsing_4layer() -> HParams:
    """Table 4, WSJ only: the parser that is trained on the treebank's 39,832 sentences.

    At about 60 target tokens per sentence and 25,000 per step, an epoch is about 100 steps, so 20,000 steps are about
    200 epochs. The paper does not give the number of steps; this one is ours.
    """
    return replace(
        transformer_base(),
        num_hidden_layers=4,
        hidden_size=1024,
        # As in tensor2tensor's parsing_base. A wide model needs twice base's dropout on little text, also on the
        # attention weights, where the paper mentions it (section 6.3).
        layer_prepostprocess_dropout=0.2,
        attention_dropout=0.2,
        # As in tensor2tensor. Trees are long, and a slow start keeps post-norm stable on few examples. 16,000 of the
        # 20,000 steps are warmup, so the rate peaks at 0.00025, half of its peak with base's warmup at this width.
        # The number of steps and the interval are ours: an evaluation every 5 epochs, on a dev set of 1,700 sentences.
        max_length=512,
        learning_rate_warmup_steps=16000,
        train_steps=20000,
        local_eval_frequency=500,
    )


@registry.register_hparams
def transformer_parsing_4layer_semi() -> HParams:
    """Table 4, semi-supervised: the parser that also learns from 17 M automatically parsed sentences.

    An epoch is about 41,000 steps, so base's 100,000 steps are about 2.5 epochs. With this much text, base's warmup and
    residual dropout suffice (tensor2tensor's parsing_big has both). Attention dropout, which the paper mentions for its
    parsers (section 6.3), has the same value. The evaluation interval is also base's.
    """
    return replace(
        transformer_parsing_4layer(),
        layer_prepostprocess_dropout=0.1,
        attention_dropout=0.1,
        learning_rate_warmup_steps=4000,
        train_steps=100000,
        local_eval_frequency=1500,
    )
