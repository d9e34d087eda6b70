"""ConvS2S's hparams sets (Gehring et al. 2017): those of its paper for WMT, and a small one for a CPU.

The paper trains with Nesterov's accelerated gradient method: momentum 0.99, gradients of a norm above 0.1 divided by
their norm and multiplied by 0.1, and a learning rate of 0.25 that is divided by 10 after each epoch once the dev
perplexity stops falling (section 4.2). Our trainer always uses Adam and has no such schedule. So the sets for WMT have
the optimizer, learning rate, batch size and number of steps of transformer_base or transformer_big_enfr. The paper does
not state its number of steps. It does not mention label smoothing.
"""

from __future__ import annotations

from dataclasses import replace

from t2t_repro import registry
from t2t_repro.hparam import HParams
from t2t_repro.hparams.transformer import TINY_TRAINING


@registry.register_hparams
def convs2s_ende() -> HParams:
    """ConvS2S for WMT EN-DE: 15 layers of widths 512, 1,024 and 2,048 in each stack.

    The widths are those of the authors' code. The text of section 5.1 has 512 in ten layers, 768 in three and 2,048 in
    two, with which the model would not have its published number of parameters (docs/paper.md). The paper reports 25.16
    BLEU on newstest2014, with 40,000 BPE types. Dropout is 0.2, as in the authors' published command. 100,000 steps are
    about 19 epochs. We have not measured this set.
    """
    return registry.hparams_class("convs2s")(
        num_hidden_layers=15,
        hidden_size=768,
        convolutions="512x3*9+1024x3*4+2048x1*2",
        output_embedding_size=512,
        shared_embedding_and_softmax_weights=False,
        layer_prepostprocess_dropout=0.2,
        label_smoothing=0.0,
        num_last_checkpoints=1,
    )


@registry.register_hparams
def convs2s_enfr() -> HParams:
    """ConvS2S for WMT EN-FR: 15 layers of widths 512 to 4,096 in each stack.

    The widths are those of the authors' code. The text of section 5.1 states 15 layers, but lists 14. The paper reports
    40.46 BLEU on newstest2014, with 40,000 BPE types, after 37 days on 8 GPUs. Dropout is 0.1, as in the authors'
    published command. 300,000 steps are about 7 epochs. We have not measured this set.
    """
    return replace(
        convs2s_ende(),
        convolutions="512x3*6+768x3*4+1024x3*3+2048x1+4096x1",
        layer_prepostprocess_dropout=0.1,
        train_steps=300000,
    )


@registry.register_hparams
def convs2s_tiny() -> HParams:
    """4 encoder and 3 decoder layers of width 128 and kernel width 3, for experiments like those of transformer_tiny.

    With 8,000 vocabulary entries it has 1.96 M parameters; transformer_tiny has 1.95 M. Source, target and softmax
    share one embedding matrix, as in transformer_tiny but not in the paper. Batches, steps and schedule are those of
    transformer_tiny.
    """
    return registry.hparams_class("convs2s")(
        num_hidden_layers=4,
        num_decoder_layers=3,
        hidden_size=128,
        **TINY_TRAINING,
    )
