"""Tests that the module of tensor2tensor's sets has its names and sizes."""

from t2t_repro import registry
from t2t_repro.hparams import tensor2tensor


def test_the_module_has_tensor2tensors_names_and_meanings() -> None:
    assert tensor2tensor.transformer_base() == registry.hparams("transformer_base_v3")
    assert tensor2tensor.transformer_big() == registry.hparams("transformer_big_v3")
    for name in ("transformer_tiny", "transformer_small"):
        hparams = getattr(tensor2tensor, name)()
        ours = registry.hparams(name)
        assert (hparams.norm_before, hparams.train_steps, hparams.learning_rate_constant) == (
            True,
            250_000,
            2.0,
        )
        for size in ("num_hidden_layers", "hidden_size", "filter_size", "num_heads"):
            assert getattr(hparams, size) == getattr(ours, size)
