"""Modules that turn text into files of subword ids, and these files into batches for training."""

from typing import Any

__all__ = ["as_dataset"]


def __getattr__(name: str) -> Any:
    """Imports `as_dataset` when it is first used, because TensorFlow takes seconds."""
    if name != "as_dataset":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from t2t_repro.data.tf_dataset import as_dataset

    return as_dataset
