"""Hyper-parameters as frozen dataclasses, with functions that override fields.

`HParams` has the hyper-parameters of training and of the paper's model. A model with more of them
extends the class, as t2t_repro/rivals/convs2s.py does, and names its class in the attribute
`hparams_class`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

from t2t_repro.errors import UserError, refuse_unknown
from t2t_repro.files.json_file import check_type

T = TypeVar("T")
Range = tuple[float, float]
"""The smallest and the largest value of a hyper-parameter."""

SCHEDULE_FACTORS: dict[str, tuple[str, ...]] = {
    "constant": ("learning_rate_constant",),
    **dict.fromkeys(
        ("linear_warmup", "noam", "rsqrt_decay", "linear_decay"), ("learning_rate_warmup_steps",)
    ),
    "exp_decay": (
        "learning_rate_warmup_steps",
        "learning_rate_decay_rate",
        "learning_rate_decay_steps",
        "learning_rate_decay_staircase",
    ),
    "rsqrt_hidden_size": (),
}
"""Factors of learning_rate_schedule, with the hparams that only a schedule uses and each of them
uses.
"""
OPTIMIZERS: dict[str, tuple[str, ...]] = {
    "adam": (
        "optimizer_adam_beta1", "optimizer_adam_beta2", "optimizer_adam_epsilon",
        "optimizer_adafactor_multiply_by_parameter_scale",
    ),
    "sgd": (),
    "momentum": ("optimizer_momentum_momentum", "optimizer_momentum_nesterov"),
}  # fmt: skip
"""The optimizers, with the hparams that only they use."""

MAX_INT = 2**31 - 1
"""Maximum of an integer: TensorFlow counts positions, tokens and hypotheses in 32 bits."""
COUNT: Range = (1, MAX_INT)
LAYERS: Range = (1, 1000)
WIDTH: Range = (1, 1 << 20)
OPTIONAL_WIDTH: Range = (0, 1 << 20)
RATE: Range = (0, math.nextafter(1, 0))
POSITIVE: Range = (1e-37, 1e38)
"""Range of a positive float. float32 rounds smaller numbers to 0; its largest number is 3.4e38."""
TRANSFORMER_ONLY = (
    "filter_size",
    "num_heads",
    "attention_key_channels",
    "attention_value_channels",
    "self_attention_neighborhood",
    "self_attention_type",
    "max_relative_position",
    "norm_before",
    "norm_epsilon",
    "pos",
    "use_target_space_embedding",
    "attention_dropout",
    "relu_dropout",
    "activation",
    "use_attention_biases",
    "use_softmax_bias",
    "multiply_embedding_mode",
)
"""Fields of `HParams` that the paper's model uses, but not every model."""


@dataclass(frozen=True)
class HParams:
    """The hyper-parameters of the paper's model and of training; the base class of those of other
    models.

    Field names are tensor2tensor's. The docstrings use the paper's symbols, such as d_model, and
    section numbers. The defaults are those of the paper's base model (Table 3, first row). A wrong
    value raises UserError.
    """

    model: str = "transformer"
    """Name of the model in the registry."""
    num_hidden_layers: int = 6
    """N: number of layers in each of the two stacks, encoder and decoder."""
    num_encoder_layers: int = 0
    """Number of layers in the encoder; 0 means num_hidden_layers."""
    num_decoder_layers: int = 0
    """Number of layers in the decoder; 0 means num_hidden_layers."""
    hidden_size: int = 512
    """d_model: width of embeddings, sub-layer outputs and the residual path."""
    filter_size: int = 2048
    """d_ff: inner width of the feed-forward sub-layer."""
    num_heads: int = 8
    """h: number of attention heads."""
    attention_key_channels: int = 0
    """h * d_k: total width of the keys of all heads; 0 means hidden_size."""
    attention_value_channels: int = 0
    """h * d_v: total width of the values of all heads; 0 means hidden_size."""
    self_attention_neighborhood: int = 0
    """r of restricted self-attention (section 4): each position attends only to positions at most r
    // 2 away. The decoder still masks later positions. 0 means no restriction, as in the paper's
    experiments.
    """
    self_attention_type: str = "dot_product"
    """Self-attention: "dot_product" as in the paper, or "dot_product_relative", which adds learned
    vectors of the distances between positions to keys and values (Shaw et al. 2018).
    """
    max_relative_position: int = 0
    """k: largest distance that has a vector of its own in "dot_product_relative". 0 if
    self_attention_type is "dot_product".
    """
    norm_before: bool = False
    """True: layer norm is applied before each sub-layer and at the end of each stack
    (tensor2tensor's "n" and "da"). False: layer norm is applied after each residual sum, as in the
    paper (tensor2tensor's "none" and "dan").
    """
    norm_epsilon: float = 1e-6
    """Constant added to the variance in layer norm."""
    pos: str = "timing"
    """Position encoding: "timing" for the sinusoids of the authors' code, "marian" for those of
    Marian, "emb" for learned vectors (Table 3, row E), "none".
    """
    activation: str = "relu"
    """Activation inside the feed-forward sub-layer: "relu" as in the paper, "swish" or "gelu"."""
    use_attention_biases: bool = False
    """True to add a learned bias to the result of each projection of attention, as Marian does.
    False, as in the paper, adds none.
    """
    use_softmax_bias: bool = False
    """True to add a learned bias to the logits, as Marian does. False, as in the paper, adds none.
    """
    multiply_embedding_mode: str = "sqrt_depth"
    """Factor of the rows of the embedding matrix: "sqrt_depth" for sqrt(d_model) (section 3.4),
    "none" for 1.
    """
    shared_embedding_and_softmax_weights: bool = True
    """True: one matrix serves as source embedding, target embedding and pre-softmax projection
    (section 3.4), so source and target need the same vocabulary. False: the projection has its own
    matrix.
    """
    shared_embedding: bool = False
    """True, if shared_embedding_and_softmax_weights is False: source and target share an embedding
    matrix. False: each has its own.
    """
    use_target_space_embedding: bool = False
    """True to add a learned vector to each encoder position, as tensor2tensor does; the problem's
    `target_space_id` selects the vector. False, as in the paper, adds none.
    """
    initializer: str = "uniform_unit_scaling"
    """Distribution of initial weights. "uniform_unit_scaling": kernels are uniform, with a variance
    that depends on their sizes (Glorot and Bengio 2010). "uniform": kernels and embeddings are
    uniform up to 0.1 * initializer_gain.
    """
    initializer_gain: float = 1.0
    """Factor of the initial variance of all kernels, but not of embeddings: initializer_gain * 2 /
    (m + n) for a kernel [m, n]. On small data, models with 4 or more layers learn better with 0.5
    (docs/depth.md). See also initializer.
    """

    layer_prepostprocess_dropout: float = 0.1
    """P_drop (section 5.4): dropout rate on sub-layer outputs and on sums of embeddings and
    position encodings.
    """
    attention_dropout: float = 0.0
    """Dropout rate on the attention weights."""
    relu_dropout: float = 0.0
    """Dropout rate on the inner activations of the feed-forward sub-layer."""
    label_smoothing: float = 0.1
    """epsilon_ls: probability moved from the correct token to all other tokens, in equal parts
    (section 5.4).
    """

    rdrop_alpha: float = 0.0
    """Weight of R-Drop's consistency loss (Liang et al. 2021, who give 5); 0 means none. With it,
    each example passes the model twice, with different dropout masks, so that a step takes twice as
    long.
    """

    batch_size: int = 25000
    """Approximate number of target tokens in a training step, on all devices together (section
    5.1).
    """
    max_length: int = 256
    """Maximum length of a source or target in training, in tokens, counting the end token."""
    subword_alpha: float = 0.0
    """Subword sampling in training: probability that a merge of byte pairs is skipped, or exponent
    of the probabilities from which the pieces of a unigram vocabulary are drawn; 0 means none. See
    docs/training.md.
    """
    subword_nbest_size: int = -1
    """Number of most likely splits of each word from which a unigram vocabulary draws, at least 2;
    -1 means all.
    """
    train_steps: int = 100000
    """Number of training steps. The flag --train_steps overrides it."""
    local_eval_frequency: int = 1500
    """Number of steps between two checkpoints; --local_eval_frequency overrides it. In the paper,
    ten minutes.
    """
    num_last_checkpoints: int = 5
    """Number of checkpoints to average, counting back from the latest; --num_last_checkpoints
    overrides it.
    """

    learning_rate_schedule: str = "constant*noam"
    """Names of factors, joined by asterisks; the learning rate is their product.
    t2t_repro/training/schedule.py has the formulas. The default, with learning_rate_constant=1, is
    the paper's equation 3.
    """
    learning_rate_constant: float = 1.0
    """Value of the factor "constant" in learning_rate_schedule."""
    learning_rate_warmup_steps: int = 4000
    """Number of warm-up steps. Meanwhile, the factors "noam" and "linear_warmup" grow linearly, and
    "rsqrt_decay", "linear_decay" and "exp_decay" are constant.
    """
    learning_rate_decay_rate: float = 1.0
    """Factor by which "exp_decay" multiplies the learning rate in every learning_rate_decay_steps
    steps.
    """
    learning_rate_decay_steps: int = 5000
    """Number of steps in which "exp_decay" multiplies the learning rate by
    learning_rate_decay_rate.
    """
    learning_rate_decay_staircase: bool = False
    """True: "exp_decay" changes the learning rate only every learning_rate_decay_steps steps.
    False: in every step.
    """
    optimizer: str = "adam"
    """The optimizer: "adam" (section 5.3), "sgd", or "momentum" for stochastic gradient descent
    with momentum.
    """
    optimizer_momentum_momentum: float = 0.9
    """Decay rate of the sum of updates in "momentum"."""
    optimizer_momentum_nesterov: bool = False
    """True: Nesterov's form of "momentum", which computes an update from the next sum."""
    optimizer_adam_beta1: float = 0.9
    """Adam's decay rate of the first moment (section 5.3)."""
    optimizer_adam_beta2: float = 0.98
    """Adam's decay rate of the second moment (section 5.3)."""
    optimizer_adam_epsilon: float = 1e-9
    """Adam's epsilon, which keeps the update finite (section 5.3)."""
    optimizer_adafactor_multiply_by_parameter_scale: bool = False
    """True to multiply each update of a weight by its root mean square, as tensor2tensor's
    Adafactor does.
    """
    clip_grad_norm: float = 0.0
    """Largest Euclidean norm of all gradients of a step together; larger gradients are scaled down
    to it. 0, as in the paper, for no limit.
    """
    weight_decay: float = 0.0
    """Each step first multiplies every matrix by 1 - weight_decay * learning rate (Loshchilov and
    Hutter 2019). 0, as in the paper, for no decay. (tensor2tensor's weight_decay adds to the loss
    instead.)
    """
    frozen: str = ""
    """Parts of the names of weights that training leaves as they are, separated by commas:
    "embedding" or "encoder/layer_0", with * for any characters. The flag --freeze overrides it. ""
    trains all weights.
    """

    ranges: ClassVar[dict[str, Range]] = {
        "num_hidden_layers": LAYERS,
        **dict.fromkeys(("num_encoder_layers", "num_decoder_layers"), (0, LAYERS[1])),
        **dict.fromkeys(("hidden_size", "filter_size", "num_heads"), WIDTH),
        **dict.fromkeys(("attention_key_channels", "attention_value_channels"), OPTIONAL_WIDTH),
        **dict.fromkeys(("self_attention_neighborhood", "max_relative_position"), (0, MAX_INT)),
        **dict.fromkeys(
            (
                "layer_prepostprocess_dropout",
                "attention_dropout",
                "relu_dropout",
                "label_smoothing",
            ),
            RATE,
        ),
        **dict.fromkeys(
            ("optimizer_adam_beta1", "optimizer_adam_beta2", "optimizer_momentum_momentum"), RATE
        ),
        "learning_rate_decay_rate": (POSITIVE[0], 1),
        **dict.fromkeys(("initializer_gain", "learning_rate_constant", "norm_epsilon"), POSITIVE),
        "optimizer_adam_epsilon": POSITIVE,
        **dict.fromkeys(("clip_grad_norm", "weight_decay", "rdrop_alpha"), (0, POSITIVE[1])),
        **dict.fromkeys(("batch_size", "max_length", "train_steps", "local_eval_frequency"), COUNT),
        **{"subword_alpha": RATE, "subword_nbest_size": (-1, 512)},
        **dict.fromkeys(
            ("num_last_checkpoints", "learning_rate_warmup_steps", "learning_rate_decay_steps"),
            COUNT,
        ),
    }
    """Ranges of the numbers. A subclass adds those of its fields."""
    choices: ClassVar[dict[str, tuple[str, ...]]] = {
        "initializer": ("uniform_unit_scaling", "uniform"),
        "optimizer": tuple(OPTIMIZERS),
        "pos": ("timing", "marian", "emb", "none"),
        "activation": ("relu", "swish", "gelu"),
        "multiply_embedding_mode": ("sqrt_depth", "none"),
        "self_attention_type": ("dot_product", "dot_product_relative"),
    }
    """Values of the strings."""
    unused: ClassVar[tuple[str, ...]] = ()
    """Fields that the model does not use, so that they must have their defaults."""

    def __post_init__(self) -> None:
        _check_values(self)
        for name in self.unused:
            if getattr(self, name) != getattr(HParams, name):
                raise self._no_effect(name, self.model)
        for name in (
            ("attention_key_channels", "attention_value_channels")
            if "num_heads" not in self.unused
            else ()
        ):
            name = name if getattr(self, name) else "hidden_size"
            if getattr(self, name) % self.num_heads:
                raise UserError(
                    f"num_heads={self.num_heads} does not divide {name}={getattr(self, name)}"
                )
        is_relative, k = (
            self.self_attention_type == "dot_product_relative",
            self.max_relative_position,
        )
        if self.hidden_size % 2 == 1:
            raise UserError(f"hidden_size={self.hidden_size} must be even")
        if is_relative != (k > 0):
            raise UserError(
                f"self_attention_type={self.self_attention_type} and max_relative_position={k}: "
                "relative self-attention needs both, e.g. dot_product_relative and 20; other "
                "self-attention dot_product and 0"
            )
        if is_relative and self.self_attention_neighborhood:
            raise UserError(
                f"self_attention_neighborhood={self.self_attention_neighborhood} has no effect "
                "with self_attention_type=dot_product_relative; omit one of them"
            )
        if self.shared_embedding and self.shared_embedding_and_softmax_weights:
            raise UserError(
                "shared_embedding=true has no effect with "
                "shared_embedding_and_softmax_weights=true; omit one of them"
            )
        if self.subword_nbest_size != -1 and not (
            self.subword_alpha and self.subword_nbest_size >= 2
        ):
            raise UserError(
                f"subword_nbest_size={self.subword_nbest_size} has no effect; give 2 or more, and "
                "subword_alpha"
            )
        for factor in self.learning_rate_schedule.split("*"):
            refuse_unknown("factor of learning_rate_schedule", factor, SCHEDULE_FACTORS)

    def check_shared_width(self, name: str) -> None:
        """Raises UserError if embeddings and softmax share a matrix, but field `name` gives one
        another width.
        """
        width = getattr(self, name)
        if self.shared_embedding_and_softmax_weights and width not in (0, self.hidden_size):
            raise UserError(
                f"{name}={width} differs from hidden_size={self.hidden_size}, so embeddings and "
                "softmax cannot share a matrix; set shared_embedding_and_softmax_weights=false, "
                "or omit it"
            )

    @classmethod
    def of(cls, hparams: HParams, **changes: Any) -> Self:
        """Returns hparams of this class with the values of `hparams`, except for `changes`.

        A value at its default becomes the default of this class, which may be another one.

        Raises UserError if a field of `hparams` that this class does not have is not at its
        default.
        """
        fields = dataclasses.fields(hparams)
        values = {f.name: value for f in fields if (value := getattr(hparams, f.name)) != f.default}
        if foreign := values.keys() - {field.name for field in dataclasses.fields(cls)}:
            raise hparams._no_effect(min(foreign), changes.get("model", hparams.model))
        return cls(**{"model": hparams.model} | values | changes)

    def _no_effect(self, name: str, model: str) -> UserError:
        return UserError(
            f"{name}={getattr(self, name)} has no effect in the model {model}; omit it, or choose "
            "an hparams set of this model (--registry_help lists them)"
        )

    @property
    def shapes_weights(self) -> list[str]:
        """Names of the fields that determine the names and shapes of the model's weights.

        All fields that a subclass adds count as such, unless it says otherwise.
        """
        base = {field.name for field in dataclasses.fields(HParams)}
        names = [
            "model",
            "num_hidden_layers",
            "num_encoder_layers",
            "num_decoder_layers",
            "hidden_size",
            "filter_size",
            "attention_key_channels",
            "attention_value_channels",
            "norm_before",
            "pos",
            "self_attention_type",
            "max_relative_position",
            "shared_embedding",
            "shared_embedding_and_softmax_weights",
            "use_target_space_embedding",
            "use_attention_biases",
            "use_softmax_bias",
        ]
        names += ["max_length"] if self.pos == "emb" else []
        names += ["num_heads"] if self.max_relative_position else []
        return names + [name for name in vars(self) if name not in base]

    @property
    def encoder_layers(self) -> int:
        """Number of layers in the encoder."""
        return self.num_encoder_layers or self.num_hidden_layers

    @property
    def decoder_layers(self) -> int:
        """Number of layers in the decoder."""
        return self.num_decoder_layers or self.num_hidden_layers

    @property
    def key_channels(self) -> int:
        """h * d_k: total width of the keys of all heads."""
        return self.attention_key_channels or self.hidden_size

    @property
    def value_channels(self) -> int:
        """h * d_v: total width of the values of all heads."""
        return self.attention_value_channels or self.hidden_size


@dataclass(frozen=True)
class DecodeHParams:
    """The parameters of beam search (section 6.1) and of sampling. docs/decoding.md has the
    formulas.
    """

    beam_size: int = 4
    """Number of hypotheses that beam search keeps at each step; 1 is greedy search."""
    alpha: float = 0.6
    """Exponent of the length penalty ((5 + length) / 6) ** alpha (Wu et al. 2016, equation 14); 0
    disables it.
    """
    extra_length: int = 50
    """Maximum number of tokens by which an output may be longer than its input, or than input and
    prefix together.
    """
    batch_size: int = 2048
    """Maximum number of source tokens that are decoded together, counting padding. It affects only
    speed and memory.
    """
    max_input_size: int = 0
    """Maximum length of an input, in tokens counting the end token; --long_lines says what happens
    to longer inputs. 0 means the model's max_length.
    """

    n: int = 1
    """Number of outputs per input: at most beam_size, best first. If sampling_method is random, any
    number, in the order in which they were drawn.
    """
    write_beam_scores: bool = False
    """True to write each output's score and number of tokens after the output, separated by tabs.
    """
    prefix_file: str = ""
    """Path of a file: line i is the required beginning of every output for input i; an empty line
    requires nothing.
    """

    well_formed: bool = False
    """True to allow only outputs that are trees over exactly the words of the input, for parsers
    (docs/parsing.md). False for the paper's way: a free search, after which t2t-decoder repairs
    outputs that are not trees.
    """
    coverage_penalty: float = 0.0
    """beta: strength of the coverage penalty (Wu et al. 2016, equation 14); 0 disables the penalty.
    """
    repeat_ngram_size: int = 0
    """Length in tokens of the n-grams that an output is penalized for repeating; 0 disables the
    penalty.
    """
    repeat_ngram_penalty: float = 0.0
    """Penalty in nats, subtracted from the log-probability of each token that completes a repeated
    n-gram; inf forbids the token.
    """

    sampling_method: str = "argmax"
    """Either "argmax" for beam search, or "random" to sample n outputs from the model's
    distribution without a beam.
    """
    sampling_temp: float = 1.0
    """Temperature, by which logits are divided before a token is sampled."""
    sampling_keep_top_k: int = 0
    """Number of most likely tokens from which sampling chooses; 0 means all tokens."""
    sampling_keep_top_p: float = 1.0
    """p of nucleus sampling (Holtzman et al. 2020), which draws from the smallest set of tokens
    with probability p.
    """
    sampling_seed: int = 0
    """Seed of sampling. It and a line's number determine the line's outputs, except for rounding:
    with another batch_size or on another machine, about 1 output in 100 differs.
    """

    ranges: ClassVar[dict[str, Range]] = {
        "beam_size": (1, 10_000),
        "alpha": (0, 10),
        "extra_length": OPTIONAL_WIDTH,
        "batch_size": COUNT,
        "max_input_size": OPTIONAL_WIDTH,
        "n": (1, 10_000),
        "coverage_penalty": (0, 1000),
        "repeat_ngram_size": (0, 100),
        "repeat_ngram_penalty": (0, math.inf),
        "sampling_temp": (1e-3, POSITIVE[1]),
        "sampling_keep_top_k": (0, MAX_INT),
        "sampling_keep_top_p": (POSITIVE[0], 1),
        "sampling_seed": (0, 2**63 - 1),
    }
    """Ranges of the numbers."""
    choices: ClassVar[dict[str, tuple[str, ...]]] = {"sampling_method": ("argmax", "random")}
    """Values of the strings."""

    def __post_init__(self) -> None:
        _check_values(self)
        size, penalty = self.repeat_ngram_size, self.repeat_ngram_penalty
        if (size > 0) != (penalty > 0):
            raise UserError(
                f"repeat_ngram_size={size} and repeat_ngram_penalty={penalty}: give both or none"
            )
        if self.well_formed and penalty == math.inf:
            raise UserError(
                "repeat_ngram_penalty=inf can forbid all trees; give a finite penalty with "
                "well_formed=true"
            )
        if self.is_random and self.coverage_penalty:
            raise UserError("coverage_penalty orders a beam; sampling_method=random has none")
        if not self.is_random and self.n > self.beam_size:
            raise UserError(f"n={self.n} must be at most beam_size={self.beam_size}")
        for name in (
            "sampling_temp",
            "sampling_keep_top_k",
            "sampling_keep_top_p",
            "sampling_seed",
        ):
            if not self.is_random and getattr(self, name) != getattr(DecodeHParams, name):
                raise UserError(f"{name}={getattr(self, name)} needs sampling_method=random")

    @property
    def is_random(self) -> bool:
        """True if outputs are sampled, False if beam search finds them."""
        return self.sampling_method == "random"

    def __str__(self) -> str:
        fields = dataclasses.fields(self)
        shown = [
            field.name for field in fields[:4] if not (self.is_random and field.name == "beam_size")
        ]
        shown += [field.name for field in fields[4:] if getattr(self, field.name) != field.default]
        return ", ".join(f"{name}={getattr(self, name)}" for name in shown)


_type_hints: Callable[[type], dict[str, Any]] = functools.cache(typing.get_type_hints)


def _check_values(values: HParams | DecodeHParams) -> None:
    """Raises UserError if a field has a value of the wrong type, or a value that its class does not
    allow.
    """
    types = _type_hints(type(values))
    for field in dataclasses.fields(values):
        value = getattr(values, field.name)
        check_type(field.name, value, types[field.name])
        low, high = values.ranges.get(field.name, (-math.inf, math.inf))
        if types[field.name] in (int, float) and not low <= value <= high:  # also refuses NaN
            raise UserError(f"{field.name}={value} must be in {low} .. {high}")
        refuse_unknown(field.name, value, values.choices.get(field.name, (value,)))


def check_schedule(hparams: HParams) -> None:
    """Raises UserError if an hparam of the learning rate or of the optimizer is not at its default
    and has no effect.

    Only training needs this check: models from tensor2tensor may have such hparams.
    """
    for setting, users in (("learning_rate_schedule", SCHEDULE_FACTORS), ("optimizer", OPTIMIZERS)):
        chosen = getattr(hparams, setting)
        used = {name for user in chosen.split("*") for name in users[user]}
        for user, names in users.items():
            for name in names:
                value, default = getattr(hparams, name), getattr(HParams, name)
                if value != default and name not in used:
                    raise UserError(
                        f"{name}={value} has no effect with {setting}={chosen}; it needs {user} "
                        f"in {setting}. Change {setting}, or give {name}={default}"
                    )


def refuse_decode_hparams(
    values: DecodeHParams, names: Sequence[str], why: str, defaults: DecodeHParams | None = None
) -> None:
    """Raises UserError if one of the decode hparams `names`, which the caller ignores, differs from
    its default.

    The message says why they are ignored. `defaults` are by default those of `DecodeHParams()`.
    """
    defaults = defaults or DecodeHParams()
    for name in names:
        if getattr(values, name) != getattr(defaults, name):
            raise UserError(
                f"decode_hparams: {name}={getattr(values, name)} has no effect here: {why}"
            )


def override(values: T, text: str) -> T:
    """Returns a copy of dataclass `values` with the changes in `text`, e.g.
    "hidden_size=256,norm_before=true".

    As in tensor2tensor, an int has no decimal point, a bool is true, false, 1 or 0, and `text` may
    end in a comma.
    """
    return with_changes(values, overrides(type(values), text))


def with_changes(values: T, changes: dict[str, Any]) -> T:
    """Returns a copy of dataclass `values` in which the fields have the values in `changes`, by
    name.
    """
    for name in changes:
        refuse_unknown(f"field of {type(values).__name__}", name, vars(values))
    copy = dataclasses.replace(values, **changes) if changes else values  # type: ignore[type-var]
    # This check is not in DecodeHParams, because a problem's default beam_size does no harm.
    if isinstance(copy, DecodeHParams) and copy.is_random and "beam_size" in changes:
        raise UserError(
            f"beam_size={copy.beam_size} has no effect with sampling_method=random; omit it"
        )
    return copy


def overrides(kind: type, text: str) -> dict[str, Any]:
    """Returns the values in `text` by name of the field of dataclass `kind`, as `override` reads
    them.
    """
    types = typing.get_type_hints(kind)
    types = {field.name: types[field.name] for field in dataclasses.fields(kind)}
    changes = assignments(text)
    for name in changes:
        refuse_unknown(
            f"field of {'HParams' if issubclass(kind, HParams) else kind.__name__}", name, types
        )
    return {name: parse_value(name, value, types[name]) for name, value in changes.items()}


def assignments(text: str) -> dict[str, str]:
    """Returns the texts of the values in `text`, e.g. "hidden_size=256,norm_before=true", by name."""  # noqa: E501
    changes: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise UserError(f"cannot read override {part!r}: write name=value, separated by commas")
        if name in changes:
            raise UserError(f"{name} is given twice in {text!r}")
        changes[name] = value
    return changes


def parse_value(name: str, text: str, kind: type) -> Any:
    """Returns `text` converted to `kind`: int, float, bool or str. An error for invalid text names
    the field `name`.
    """
    try:
        if kind is bool:
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        return kind(text)
    except (ValueError, KeyError):
        rule = "true or false" if kind is bool else f"of type {kind.__name__}"
        raise UserError(f"{name}={text}: the value must be {rule}") from None
