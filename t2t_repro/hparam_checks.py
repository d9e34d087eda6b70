"""Checks of the values of hyper-parameters, and their limits."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from t2t_repro.errors import UserError
from t2t_repro.files.json_file import check_type

if TYPE_CHECKING:
    from t2t_repro.hparam import HParams

MAX_FLOAT = 1e38
"""Maximum value of a hyper-parameter that is a float. The largest numbers of float32 are three times as large."""
MAX_INT = 2**31 - 1
"""Maximum value of an integer hyper-parameter: TensorFlow counts positions, tokens and hypotheses in 32 bits."""
LIMITS = {
    **dict.fromkeys(("num_hidden_layers", "num_encoder_layers", "num_decoder_layers", "kernel_height"), 1000),
    **dict.fromkeys(
        (
            "hidden_size", "filter_size", "num_heads", "attention_key_channels", "attention_value_channels",
            "output_embedding_size", "embedding_size", "cell_size", "moe_num_experts", "moe_k", "extra_length",
            "max_input_size",
        ),
        1 << 20,
    ),
    **dict.fromkeys(("beam_size", "n"), 10_000),
    "repeat_ngram_size": 100,
    "alpha": 10,
    "coverage_penalty": 1000,
    "repeat_ngram_penalty": math.inf,
    "sampling_seed": 2**63 - 1,
}  # fmt: skip
"""Maximum values of hyper-parameters that make the program use more memory or time, or that make scores overflow. Other
numbers have the limits `MAX_INT` and `MAX_FLOAT`."""
SCHEDULE_HPARAMS = {
    "learning_rate_constant": ("constant",),
    "learning_rate_warmup_steps": ("linear_warmup", "noam", "rsqrt_decay", "linear_decay"),
}
"""Hparams of learning rates, with the factors of learning_rate_schedule that use them."""


def check(values: Any, names: Sequence[str], is_valid: Callable[[Any], bool], rule: str) -> None:
    """Raises UserError if `is_valid` returns False for the value of one of the fields `names`.

    `rule` is the end of the error message, e.g. "must be 1 or more".
    """
    for name in names:
        if not is_valid(getattr(values, name)):
            raise UserError(f"{name}={getattr(values, name)} {rule}")


def check_types_and_limits(values: Any) -> None:
    """Raises UserError if a field of dataclass `values` has a value of the wrong type, or a number above its limit."""
    types = typing.get_type_hints(type(values))
    for field in dataclasses.fields(values):
        value = getattr(values, field.name)
        check_type(field.name, value, types[field.name])
        limit = LIMITS.get(field.name, MAX_FLOAT if isinstance(value, float) else MAX_INT)
        if isinstance(value, int | float) and value > limit:
            raise UserError(f"{field.name}={value} must be at most {limit}")


def check_schedule(hparams: HParams) -> None:
    """Raises UserError if an hparam of the learning rate is not at its default and no factor of the schedule uses it.

    Only training needs this check. A model that was imported from tensor2tensor may have such hparams.
    """
    factors = hparams.learning_rate_schedule.split("*")
    for name, users in SCHEDULE_HPARAMS.items():
        value, default = getattr(hparams, name), getattr(type(hparams), name)
        if value != default and not set(users) & set(factors):
            raise UserError(
                f"{name}={value} has no effect with learning_rate_schedule={hparams.learning_rate_schedule}; add the "
                f'factor {users[0]}, e.g. "{users[0]}*{hparams.learning_rate_schedule}", or give {name}={default}'
            )
