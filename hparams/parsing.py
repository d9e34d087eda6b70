"""The paper's parsers (section 6.3, Table 4): four layers of width 1,024, otherwise like
transformer_base.

The paper's authors chose dropout, learning rate and beam size on section 22 of the treebank and
kept the base model's other settings, but of these three they state only the beam size. Maximum
length, warmup, and the dropout of residuals and attention weights are therefore those of
tensor2tensor's transformer_parsing_base and transformer_parsing_big. The learning_rate of these two
sets has no effect in tensor2tensor. Our learning_rate_constant is 1, as in equation 3 and in
transformer_base. Like transformer_base, the parsers average the last five checkpoints.
"""

from dataclasses import replace

from t2t_repro import registry
from t2t_repro.hparam import HParams
from t2t_repro.hparams.transformer import transformer_base


@registry.register_hparams
def transformer_parsing_4layer() -> HParams:
    """Table 4, WSJ only: the parser that is trained on the treebank's 39,832 sentences.

    At about 60 target tokens per sentence and 25,000 per step, an epoch is about 100 steps. The
    paper does not state the number of steps; 20,000, about 200 epochs, is our choice. The learning
    rate peaks at 0.00025.
    """
    return replace(
        transformer_base(),
        num_hidden_layers=4,
        hidden_size=1024,
        layer_prepostprocess_dropout=0.2,
        attention_dropout=0.2,
        max_length=512,
        learning_rate_warmup_steps=16000,
        train_steps=20000,
        local_eval_frequency=500,
    )


@registry.register_hparams
def transformer_parsing_4layer_semi() -> HParams:
    """Table 4, semi-supervised: the parser that also learns from 17 M automatically parsed
    sentences.

    An epoch is about 41,000 steps, so transformer_base's 100,000 steps are about 2.5 epochs. Warmup
    and both dropout rates are those of tensor2tensor's transformer_parsing_big.
    local_eval_frequency is that of transformer_base.
    """
    return replace(
        transformer_parsing_4layer(),
        layer_prepostprocess_dropout=0.1,
        attention_dropout=0.1,
        learning_rate_warmup_steps=4000,
        train_steps=100000,
        local_eval_frequency=1500,
    )
