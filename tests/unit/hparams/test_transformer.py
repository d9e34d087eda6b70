"""Tests that the hparams sets have the values of the paper's Table 3 and section 5, and of
tensor2tensor's sets.
"""

from t2t_repro import registry
from t2t_repro.hparam import check_schedule


def test_base_and_big_have_the_papers_values() -> None:
    base = registry.hparams("transformer_base")
    assert (base.num_hidden_layers, base.hidden_size, base.filter_size, base.num_heads) == (
        6,
        512,
        2048,
        8,
    )
    assert base.key_channels == base.value_channels == 8 * 64
    assert (base.layer_prepostprocess_dropout, base.attention_dropout, base.relu_dropout) == (
        0.1,
        0,
        0,
    )
    assert (base.optimizer_adam_beta1, base.optimizer_adam_beta2, base.optimizer_adam_epsilon) == (
        0.9,
        0.98,
        1e-9,
    )
    assert (base.learning_rate_schedule, base.learning_rate_constant) == ("constant*noam", 1.0)
    assert (base.learning_rate_warmup_steps, base.train_steps, base.batch_size) == (
        4000,
        100_000,
        25_000,
    )
    assert (base.label_smoothing, base.norm_before, base.pos) == (0.1, False, "timing")
    assert base.shared_embedding_and_softmax_weights and not base.use_target_space_embedding
    big = registry.hparams(
        "transformer_big"
    )  # 600 steps of 1.0 s take 10 minutes, like 1,500 of 0.4 s in base
    assert (big.train_steps, big.local_eval_frequency, big.num_last_checkpoints) == (
        300_000,
        600,
        20,
    )


def test_every_set_has_a_schedule_that_uses_its_hparams() -> None:
    registry.import_built_in()
    for name in registry._hparams.names():
        check_schedule(registry.hparams(name))
