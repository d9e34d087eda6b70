"""Hyper-parameters: frozen dataclasses whose every field is typed, documented, overridable and kept as JSON."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from t2t_repro.errors import UserError, unknown

T = TypeVar("T")

POSITIONS = ("timing", "emb")
SCHEDULE_FACTORS = ("constant", "linear_warmup", "rsqrt_decay", "rsqrt_hidden_size", "noam", "linear_decay")


@dataclass(frozen=True)
class HParams:
    """How to train a model. Names are tensor2tensor's; sizes are those of the paper's section 3.

    The defaults are the paper's base model (Table 3, first row).

    Raises:
        UserError: a value is out of its range, or two values contradict each other.
    """

    model: str = "transformer"
    """Name of the model in the registry."""
    num_hidden_layers: int = 6
    """N: layers of the encoder and, as many again, of the decoder."""
    hidden_size: int = 512
    """d_model: width of embeddings, sub-layer outputs and the residual path."""
    filter_size: int = 2048
    """d_ff: inner width of the feed-forward sub-layer."""
    num_heads: int = 8
    """h: attention heads."""
    attention_key_channels: int = 0
    """h * d_k, all heads together; 0 means hidden_size."""
    attention_value_channels: int = 0
    """h * d_v, all heads together; 0 means hidden_size."""
    self_attention_neighborhood: int = 0
    """r: position i attends to those from i - r // 2 to i + r // 2 alone, in the decoder to none after i (section 4,
    "restricted"); 0 is to all, as in the paper's experiments."""
    norm_before: bool = False
    """Layer norm before each sub-layer and at the end of each stack (tensor2tensor's "n", "da"), not after the
    residual sum as in the paper (its "none", "dan")."""
    norm_epsilon: float = 1e-6
    """Added to the variance in layer norm."""
    pos: str = "timing"
    """Positions: "timing" is the paper's sinusoids, "emb" a learned row for each position (Table 3, row E)."""
    shared_embedding_and_softmax_weights: bool = True
    """One matrix for source embedding, target embedding and pre-softmax projection (section 3.4); else three."""
    use_target_space_embedding: bool = False
    """Add a learned vector for the problem's target space to every encoder position, as tensor2tensor did; the
    paper has none."""

    layer_prepostprocess_dropout: float = 0.1
    """P_drop: on each sub-layer's output and on the sums of embeddings and positions (section 5.4)."""
    attention_dropout: float = 0.0
    """On the attention weights."""
    relu_dropout: float = 0.0
    """On the feed-forward sub-layer's inner activations."""
    label_smoothing: float = 0.1
    """Epsilon_ls: probability taken from the right token and shared among all others (section 5.4)."""

    batch_size: int = 25000
    """Target tokens in a step, over all devices; the source holds about as many (section 5.1)."""
    max_length: int = 256
    """Longest source or target, in tokens with the end token, that is trained on."""
    train_steps: int = 100000
    """Steps that the experiment takes, where --train_steps does not say otherwise."""
    local_eval_frequency: int = 1500
    """Steps between two checkpoints, where --local_eval_frequency does not say otherwise; 1,500 of base's steps are the
    paper's ten minutes on its machine (section 6.1)."""
    num_last_checkpoints: int = 5
    """Checkpoints that are averaged, where --num_last_checkpoints does not say otherwise; 1 is the last alone."""

    learning_rate_schedule: str = "constant*noam"
    """Product of factors, see t2t_repro/training/schedule.py; "constant*noam" with constant 1 is equation 3."""
    learning_rate_constant: float = 1.0
    """The factor "constant"."""
    learning_rate_warmup_steps: int = 4000
    """Steps of linear growth in the factors "noam" and "linear_warmup"."""
    optimizer_adam_beta1: float = 0.9
    """Adam's decay of the first moment (section 5.3)."""
    optimizer_adam_beta2: float = 0.98
    """Adam's decay of the second moment."""
    optimizer_adam_epsilon: float = 1e-9
    """Adam's epsilon."""

    def __post_init__(self) -> None:
        at_least_one = ("num_hidden_layers", "hidden_size", "filter_size", "num_heads", "batch_size", "max_length")
        of_steps = ("train_steps", "local_eval_frequency", "num_last_checkpoints", "learning_rate_warmup_steps")
        for name in (*at_least_one, *of_steps):
            _require(getattr(self, name) >= 1, f"{name}={getattr(self, name)} must be 1 or more")
        neighborhood = self.self_attention_neighborhood
        _require(neighborhood >= 0, f"self_attention_neighborhood={neighborhood} must be 0 or more; 0 is all positions")
        for name in ("layer_prepostprocess_dropout", "attention_dropout", "relu_dropout", "label_smoothing"):
            _require(0 <= getattr(self, name) < 1, f"{name}={getattr(self, name)} must be in [0, 1)")
        for name in ("norm_epsilon", "optimizer_adam_epsilon", "learning_rate_constant"):
            _require(getattr(self, name) > 0, f"{name}={getattr(self, name)} must be above 0")
        for name in ("optimizer_adam_beta1", "optimizer_adam_beta2"):
            _require(0 <= getattr(self, name) < 1, f"{name}={getattr(self, name)} must be in [0, 1)")
        for name, channels in (
            ("attention_key_channels", self.key_channels),
            ("attention_value_channels", self.value_channels),
        ):
            _require(channels > 0, f"{name}={channels} must be 0 or more; 0 is hidden_size")
            nearest = next(heads for heads in range(min(self.num_heads, channels), 0, -1) if channels % heads == 0)
            _require(
                nearest == self.num_heads,
                f"num_heads={self.num_heads} does not divide {name if getattr(self, name) else 'hidden_size'}="
                f"{channels}; give a divisor, such as {nearest}",
            )
        _require(self.hidden_size % 2 == 0, f"hidden_size={self.hidden_size} must be even: half sines, half cosines")
        if self.pos not in POSITIONS:
            raise unknown("pos", self.pos, POSITIONS)
        for factor in self.learning_rate_schedule.split("*"):
            if factor not in SCHEDULE_FACTORS:
                raise unknown("factor of learning_rate_schedule", factor, SCHEDULE_FACTORS)

    @property
    def key_channels(self) -> int:
        """h * d_k."""
        return self.attention_key_channels or self.hidden_size

    @property
    def value_channels(self) -> int:
        """h * d_v."""
        return self.attention_value_channels or self.hidden_size


SAMPLING_METHODS = ("argmax", "random")


@dataclass(frozen=True)
class DecodeHParams:
    """How to search for the best output (section 6.1), or to draw some; docs/decoding.md has the formulas.

    Raises:
        UserError: a value is out of its range, or two values contradict each other.
    """

    beam_size: int = 4
    """Hypotheses kept at each step; 1 is greedy search."""
    alpha: float = 0.6
    """Strength of the length penalty ((5 + length) / 6) ** alpha (Wu et al. 2016, equation 14); 0 is none."""
    extra_length: int = 50
    """The longest output is the input's length, in tokens with the end token, plus this many."""
    batch_size: int = 2048
    """Source tokens, padding included, decoded together; changes speed and memory, not the result."""
    max_input_size: int = 0
    """Longest source, in tokens with the end token, that is translated in one piece; 0 is the model's max_length."""

    return_beams: bool = False
    """Give the n best outputs of each input, not the best alone."""
    n: int = 0
    """Outputs of each input; 0 is beam_size with return_beams, else 1."""
    write_beam_scores: bool = False
    """Write behind each output its score and its number of tokens, separated by tabs."""
    prefix_file: str = ""
    """File with the beginning of each output, line by line; an empty line leaves it free."""

    coverage_penalty: float = 0.0
    """beta: strength of the coverage penalty (Wu et al. 2016, equation 14); 0 is none."""
    repeat_ngram_size: int = 0
    """Length, in tokens, of what is not to be repeated within an output; 0 is none."""
    repeat_ngram_penalty: float = 0.0
    """What each token that completes such a repetition takes off the log-probability, in nats; inf forbids it."""

    sampling_method: str = "argmax"
    """"argmax" searches; "random" draws n outputs from the model's distribution, and has no beam."""
    sampling_temp: float = 1.0
    """Temperature: what logits are divided by before a token is drawn."""
    sampling_keep_top_k: int = 0
    """Draw from so many likeliest tokens; 0 is all."""
    sampling_keep_top_p: float = 1.0
    """Draw from the fewest likeliest tokens that together have this probability (Holtzman et al. 2020)."""
    sampling_seed: int = 0
    """Decides, with a line's number, what is drawn for it; the same on each machine and with any batch_size."""

    def __post_init__(self) -> None:
        for name in ("beam_size", "batch_size"):
            _require(getattr(self, name) >= 1, f"{name}={getattr(self, name)} must be 1 or more")
        for name in (
            *("alpha", "extra_length", "max_input_size", "n", "coverage_penalty", "repeat_ngram_size"),
            *("repeat_ngram_penalty", "sampling_keep_top_k", "sampling_seed"),
        ):
            _require(getattr(self, name) >= 0, f"{name}={getattr(self, name)} must be 0 or more")
        _require(self.max_input_size != 1, "max_input_size=1 leaves room for the end token alone; give 2 or more")
        for name in ("alpha", "coverage_penalty"):
            _require(getattr(self, name) < float("inf"), f"{name}={getattr(self, name)} must be finite")
        _require(
            (self.repeat_ngram_size > 0) == (self.repeat_ngram_penalty > 0),
            f"repeat_ngram_size={self.repeat_ngram_size} and repeat_ngram_penalty={self.repeat_ngram_penalty}: "
            "one does nothing without the other; give both or none",
        )
        _require(self.sampling_seed < 1 << 63, f"sampling_seed={self.sampling_seed} must be below 2**63")
        temperature = self.sampling_temp
        _require(1e-3 <= temperature < float("inf"), f"sampling_temp={temperature} must be 0.001 or more, and finite")
        top_p = self.sampling_keep_top_p
        _require(0 < top_p <= 1, f"sampling_keep_top_p={top_p} must be above 0 and at most 1")
        if self.sampling_method not in SAMPLING_METHODS:
            raise unknown("sampling_method", self.sampling_method, SAMPLING_METHODS)
        if self.is_random:
            _require(not self.coverage_penalty, "coverage_penalty orders a beam; sampling_method=random has none")
        else:
            _require(self.num_best <= self.beam_size, f"n={self.n} must be at most beam_size={self.beam_size}")
            for name in ("sampling_temp", "sampling_keep_top_k", "sampling_keep_top_p", "sampling_seed"):
                value = getattr(self, name)
                _require(value == getattr(DecodeHParams, name), f"{name}={value} needs sampling_method=random")

    @property
    def is_random(self) -> bool:
        """Whether outputs are drawn, not searched for."""
        return self.sampling_method == "random"

    @property
    def num_best(self) -> int:
        """Outputs of each input."""
        return self.n or (self.beam_size if self.return_beams else 1)

    def __str__(self) -> str:
        fields = dataclasses.fields(self)
        shown = [field.name for field in fields[:4]]
        shown += [field.name for field in fields[4:] if getattr(self, field.name) != field.default]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


def refuse_decode_hparams(
    values: DecodeHParams, names: Sequence[str], why: str, usual: DecodeHParams | None = None
) -> None:
    """Raises UserError where one of the decode_hparams `names` has been given a value.

    Args:
        why: what the program does, so that it would do nothing.
        usual: the values where none are given; by default those of `DecodeHParams`.
    """
    usual = usual or DecodeHParams()
    for name in names:
        if getattr(values, name) != getattr(usual, name):
            raise UserError(f"decode_hparams: {name}={getattr(values, name)} does nothing here: {why}")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise UserError(message)


def override(values: T, text: str) -> T:
    """A copy of dataclass `values` with the overrides of `text`, e.g. "hidden_size=256,norm_before=true".

    As in tensor2tensor, an int takes no "1.0", a bool takes true, false, 1 or 0, and a trailing comma is allowed.

    Raises:
        UserError: an unknown or repeated name, a value of another type, or text that is not name=value.
    """
    types = typing.get_type_hints(type(values))
    changes: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise UserError(f"cannot read override {part!r}: write name=value, separated by commas")
        if name not in types:
            raise unknown(f"field of {type(values).__name__}", name, types)
        if name in changes:
            raise UserError(f"{name} is given twice in {text!r}")
        changes[name] = parse_value(name, value, types[name])
    return dataclasses.replace(values, **changes)  # type: ignore[type-var]


def parse_value(name: str, text: str, kind: type) -> Any:
    """`text` as a value of type `kind` (int, float, bool or str) for the field `name`.

    Raises:
        UserError: `text` is no such value.
    """
    try:
        if kind is bool:
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        return kind(text)
    except (ValueError, KeyError):
        wanted = "true or false" if kind is bool else f"of type {kind.__name__}"
        raise UserError(f"{name}={text}: the value must be {wanted}") from None


def to_json(values: Any) -> str:
    """The fields of dataclass `values` as JSON, one a line, in the order of their definition."""
    return json.dumps(dataclasses.asdict(values), indent=2, ensure_ascii=False) + "\n"


def from_json(kind: type[T], text: str, source: str) -> T:
    """The dataclass `kind` from the JSON that `to_json` wrote; fields that `text` lacks keep their defaults.

    Args:
        source: where `text` comes from, for the error.

    Raises:
        UserError: no JSON object, an unknown field, or a value of another type.
    """
    try:
        fields = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{source}:{error.lineno}: not JSON ({error.msg}); restore the file") from None
    if not isinstance(fields, dict):
        raise UserError(f"{source}: holds no JSON object; restore the file")
    types = typing.get_type_hints(kind)
    for name, value in fields.items():
        if name not in types:
            raise UserError(f"{source}: {unknown(f'field of {kind.__name__}', name, types)}")
        accepted = (int, float) if types[name] is float else types[name]
        if not isinstance(value, accepted) or (isinstance(value, bool) and types[name] is not bool):
            raise UserError(f"{source}: {name}={value!r} must be of type {types[name].__name__}")
    required = {field.name for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING}  # type: ignore[arg-type]
    if missing := sorted(required - fields.keys()):
        raise UserError(f"{source}: {', '.join(missing)} is missing; restore the file")
    try:
        return kind(**fields)
    except UserError as error:
        raise UserError(f"{source}: {error}") from None
