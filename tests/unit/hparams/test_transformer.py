"""Tests that the hparams sets have the values of the paper's Table 3 and section 5, and of
tensor2tensor's sets.
"""

from t2t_repro import registry
from t2t_repro.hparam import check_schedule


def test_base_and_big_have_the_papers_values() -> None:
    base = registry.hparams("transformer_base")
    published = {
        "num_hidden_layers": 6,
        "hidden_size": 512,
        "filter_size": 2048,
        "num_heads": 8,
        "layer_prepostprocess_dropout": 0.1,
        "attention_dropout": 0,
        "relu_dropout": 0,
        "label_smoothing": 0.1,
        "optimizer_adam_beta1": 0.9,
        "optimizer_adam_beta2": 0.98,
        "optimizer_adam_epsilon": 1e-9,
        "learning_rate_schedule": "constant*noam",
        "learning_rate_constant": 1.0,
        "learning_rate_warmup_steps": 4000,
        "train_steps": 100_000,
        "local_eval_frequency": 1500,
        "num_last_checkpoints": 5,
        "batch_size": 25_000,
        "norm_before": False,
        "pos": "timing",
        "shared_embedding_and_softmax_weights": True,
        "use_target_space_embedding": False,
    }
    assert vars(base) == vars(base) | published
    assert base.key_channels == base.value_channels == 8 * 64
    # 600 steps of 1.0 s take 10 minutes, like 1,500 of 0.4 s in base.
    longer = {"train_steps": 300_000, "local_eval_frequency": 600, "num_last_checkpoints": 20}
    big = vars(registry.hparams("transformer_big"))
    assert big == big | longer


def test_every_set_has_a_schedule_that_uses_its_hparams() -> None:
    registry.import_built_in()
    for name in registry._hparams.names():
        check_schedule(registry.hparams(name))
