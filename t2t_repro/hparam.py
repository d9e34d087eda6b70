"""Hyper-parameters as frozen dataclasses, with functions that override fields.

`HParams` has the hyper-parameters of training and of the paper's model. A model with more of them
extends the class, and names its class in the attribute `hparams_class`
(docs/write_your_own_model.md).

Everything about a hyper-parameter stands at its field: `hparam` gives the field a default and
`Traits`, and the docstring below the field explains it. Checks, the tables in docs/hparams.md,
fingerprints, flags of t2t-trainer, and what a checkpoint and its model must agree on are made from
the fields.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import typing
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, TypeVar

from t2t_repro.errors import UserError, check_type, refuse_unknown

T = TypeVar("T")
Range = tuple[float, float]
"""The smallest and the largest value of a hyper-parameter."""
Affects = Literal["weights", "outputs", "training", "length"]
"""The kinds of effect of a hyper-parameter; see `Traits`."""

MAX_INT = 2**31 - 1
"""Maximum of an integer: TensorFlow counts positions, tokens and hypotheses in 32 bits."""
COUNT: Range = (1, MAX_INT)
OPTIONAL_COUNT: Range = (0, MAX_INT)
LAYERS: Range = (1, 1000)
OPTIONAL_LAYERS: Range = (0, LAYERS[1])
WIDTH: Range = (1, 1 << 20)
OPTIONAL_WIDTH: Range = (0, WIDTH[1])
RATE: Range = (0, math.nextafter(1, 0))
POSITIVE: Range = (1e-37, 1e38)
"""Range of a positive float. float32 rounds smaller numbers to 0; its largest number is 3.4e38."""
NOT_NEGATIVE: Range = (0, POSITIVE[1])


@dataclass(frozen=True)
class Traits:
    """Facts about a hyper-parameter besides its type, default and docstring. A field that is made
    without `hparam` has the defaults below.
    """

    allowed: Sequence[Any] = ()
    """The smallest and the largest value of a number, or all values of a string; () for any."""
    affects: Affects = "weights"
    """The kind of effect, from which follows when the value may change:

    - "weights": names and shapes of the model's weights.
    - "outputs": what the model computes with the same weights. A warm start with another value
      prints a warning.
    - "training": how the weights are learned. As with the two above, a run resumes only with the
      same value.
    - "length": how long a run lasts and how often it saves. It may change when a run resumes.
    """
    needs: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    """Names of other fields, each with the values, as texts, that give this field an effect. For
    learning_rate_schedule, they are factors. With another value there, this field must have its
    default. If the field affects "training", this is checked only before training, because models
    from tensor2tensor may have such values.
    """
    flag: str = ""
    """Flag of t2t-trainer that also sets the value."""
    is_transformer_only: bool = False
    """True if the paper's model uses the field, but not every model; see `transformer_only`."""


def hparam(default: Any, allowed: Sequence[Any] = (), **traits: Any) -> Any:
    """Returns a field of a class of hyper-parameters. `allowed` and `traits` are fields of
    `Traits`.
    """
    return dataclasses.field(default=default, metadata={Traits: Traits(allowed, **traits)})


training_hparam = functools.partial(hparam, affects="training")
"""Returns a field that affects only training; the arguments are those of `hparam`."""


def traits(kind: type, name: str) -> Traits:
    """Returns the traits of field `name` of a class of hyper-parameters.

    A class that defines a field of its base class again, only with another default, keeps the
    field's traits.
    """
    for base in kind.__mro__:
        field = getattr(base, "__dataclass_fields__", {}).get(name)
        if field and Traits in field.metadata:
            return field.metadata[Traits]
    return Traits()


WARMUP_FACTORS = ("linear_warmup", "noam", "rsqrt_decay", "linear_decay", "exp_decay")
"""Factors of learning_rate_schedule that depend on the number of warm-up steps."""
SCHEDULE_FACTORS = ("constant", *WARMUP_FACTORS, "rsqrt_hidden_size")
"""Factors of learning_rate_schedule; t2t_repro/training/schedule.py has the formulas."""
WITH_WARMUP = {"learning_rate_schedule": WARMUP_FACTORS}
WITH_EXP_DECAY = {"learning_rate_schedule": ["exp_decay"]}
WITH_ADAM = {"optimizer": ["adam"]}
WITH_MOMENTUM = {"optimizer": ["momentum"]}
WITH_SAMPLING = {"sampling_method": ["random"]}


@dataclass(frozen=True)
class HParams:
    """The hyper-parameters of the paper's model and of training; the base class of those of other
    models.

    Field names are tensor2tensor's. The docstrings use the paper's symbols, such as d_model, and
    section numbers. The defaults are those of the paper's base model (Table 3, first row). A wrong
    value raises UserError.
    """

    model: str = hparam("transformer", affects="outputs", flag="model")
    """Name of the model in the registry."""
    num_hidden_layers: int = hparam(6, LAYERS)
    """N: number of layers in each of the two stacks, encoder and decoder."""
    num_encoder_layers: int = hparam(0, OPTIONAL_LAYERS)
    """Number of layers in the encoder; 0 means num_hidden_layers."""
    num_decoder_layers: int = hparam(0, OPTIONAL_LAYERS)
    """Number of layers in the decoder; 0 means num_hidden_layers."""
    hidden_size: int = hparam(512, WIDTH)
    """d_model: width of embeddings, sub-layer outputs and the residual path."""
    filter_size: int = hparam(2048, WIDTH, is_transformer_only=True)
    """d_ff: inner width of the feed-forward sub-layer."""
    num_heads: int = hparam(8, WIDTH, affects="outputs", is_transformer_only=True)
    """h: number of attention heads."""
    attention_key_channels: int = hparam(0, OPTIONAL_WIDTH, is_transformer_only=True)
    """h * d_k: total width of the keys of all heads; 0 means hidden_size."""
    attention_value_channels: int = hparam(0, OPTIONAL_WIDTH, is_transformer_only=True)
    """h * d_v: total width of the values of all heads; 0 means hidden_size."""
    self_attention_neighborhood: int = hparam(
        0,
        OPTIONAL_COUNT,
        affects="outputs",
        needs={"self_attention_type": ["dot_product"]},
        is_transformer_only=True,
    )
    """r of restricted self-attention (section 4): each position attends only to positions at most r
    // 2 away. The decoder still masks later positions. 0 means no restriction, as in the paper's
    experiments.
    """
    self_attention_type: str = hparam(
        "dot_product", ["dot_product", "dot_product_relative"], is_transformer_only=True
    )
    """Self-attention: "dot_product" as in the paper, or "dot_product_relative", which adds learned
    vectors of the distances between positions to keys and values (Shaw et al. 2018).
    """
    max_relative_position: int = hparam(
        0,
        OPTIONAL_COUNT,
        needs={"self_attention_type": ["dot_product_relative"]},
        is_transformer_only=True,
    )
    """k: largest distance that has a vector of its own in relative self-attention."""
    norm_before: bool = hparam(False, is_transformer_only=True)
    """True: layer norm is applied before each sub-layer and at the end of each stack
    (tensor2tensor's "n" and "da"). False: layer norm is applied after each residual sum, as in the
    paper (tensor2tensor's "none" and "dan").
    """
    norm_epsilon: float = hparam(1e-6, POSITIVE, affects="outputs", is_transformer_only=True)
    """Constant added to the variance in layer norm."""
    pos: str = hparam(
        "timing",
        ["timing", "marian", "emb", "none"],
        affects="outputs",
        is_transformer_only=True,
    )
    """Position encoding: "timing" for the sinusoids of the authors' code, "marian" for those of
    Marian, "emb" for learned vectors (Table 3, row E), "none".
    """
    activation: str = hparam(
        "relu", ["relu", "swish", "gelu"], affects="outputs", is_transformer_only=True
    )
    """Activation inside the feed-forward sub-layer: "relu" as in the paper, "swish" or "gelu"."""
    use_attention_biases: bool = hparam(False, is_transformer_only=True)
    """True to add a learned bias to the result of each projection of attention, as Marian does.
    False, as in the paper, adds none.
    """
    use_softmax_bias: bool = hparam(False, is_transformer_only=True)
    """True to add a learned bias to the logits, as Marian does. False, as in the paper, adds none.
    """
    multiply_embedding_mode: str = hparam(
        "sqrt_depth", ["sqrt_depth", "none"], affects="outputs", is_transformer_only=True
    )
    """Factor of the rows of the embedding matrix: "sqrt_depth" for sqrt(d_model) (section 3.4),
    "none" for 1.
    """
    shared_embedding_and_softmax_weights: bool = True
    """True: one matrix serves as source embedding, target embedding and pre-softmax projection
    (section 3.4), so source and target need the same vocabulary. False: the projection has its own
    matrix.
    """
    shared_embedding: bool = hparam(
        False, needs={"shared_embedding_and_softmax_weights": ["false"]}
    )
    """True: source and target share an embedding matrix. False: each has its own."""
    use_target_space_embedding: bool = hparam(False, is_transformer_only=True)
    """True to add a learned vector to each encoder position, as tensor2tensor does; the problem's
    `target_space_id` selects the vector. False, as in the paper, adds none.
    """
    initializer_gain: float = training_hparam(1.0, POSITIVE)
    """Factor of the initial variance of all kernels, but not of embeddings: initializer_gain * 2 /
    (m + n) for a kernel [m, n]. On small data, models with 4 or more layers learn better with 0.5
    (docs/depth.md).
    """

    layer_prepostprocess_dropout: float = training_hparam(0.1, RATE)
    """P_drop (section 5.4): dropout rate on sub-layer outputs and on sums of embeddings and
    position encodings.
    """
    attention_dropout: float = training_hparam(0.0, RATE, is_transformer_only=True)
    """Dropout rate on the attention weights."""
    relu_dropout: float = training_hparam(0.0, RATE, is_transformer_only=True)
    """Dropout rate on the inner activations of the feed-forward sub-layer."""
    label_smoothing: float = training_hparam(0.1, RATE)
    """epsilon_ls: probability moved from the correct token to all other tokens, in equal parts
    (section 5.4).
    """

    rdrop_alpha: float = training_hparam(0.0, NOT_NEGATIVE)
    """Weight of R-Drop's consistency loss (Liang et al. 2021, who give 5); 0 means none. With it,
    each example passes the model twice, with different dropout masks, so that a step takes twice as
    long.
    """

    batch_size: int = training_hparam(25000, COUNT)
    """Approximate number of target tokens in a training step, on all devices together (section
    5.1).
    """
    max_length: int = training_hparam(256, COUNT)
    """Maximum length of a source or target in training, in tokens, counting the end token."""
    subword_alpha: float = training_hparam(0.0, RATE)
    """Subword sampling in training: probability that a merge of byte pairs is skipped, or exponent
    of the probabilities from which the pieces of a unigram vocabulary are drawn; 0 means none. See
    docs/training.md.
    """
    subword_nbest_size: int = training_hparam(-1, (-1, 512))
    """Number of most likely splits of each word from which a unigram vocabulary draws, at least 2;
    -1 means all.
    """
    train_steps: int = hparam(100000, COUNT, affects="length", flag="train_steps")
    """Number of training steps."""
    local_eval_frequency: int = hparam(1500, COUNT, affects="length", flag="local_eval_frequency")
    """Number of steps between two evaluations, which also save checkpoints. In the paper, ten
    minutes.
    """
    num_last_checkpoints: int = hparam(5, COUNT, affects="length")
    """Number of checkpoints that t2t-avg-checkpoints averages, counting back from the latest; its
    flag --num_last_checkpoints overrides it.
    """

    learning_rate_schedule: str = training_hparam("constant*noam")
    """Names of factors, joined by asterisks; the learning rate is their product.
    t2t_repro/training/schedule.py has the formulas. The default, with learning_rate_constant=1, is
    the paper's equation 3.
    """
    learning_rate_constant: float = training_hparam(
        1.0, POSITIVE, needs={"learning_rate_schedule": ["constant"]}
    )
    """Value of the factor "constant" in learning_rate_schedule."""
    learning_rate_warmup_steps: int = training_hparam(4000, COUNT, needs=WITH_WARMUP)
    """Number of warm-up steps. Meanwhile, the factors "noam" and "linear_warmup" grow linearly, and
    "rsqrt_decay", "linear_decay" and "exp_decay" are constant.
    """
    learning_rate_decay_rate: float = training_hparam(1.0, (POSITIVE[0], 1), needs=WITH_EXP_DECAY)
    """Factor by which "exp_decay" multiplies the learning rate in every learning_rate_decay_steps
    steps.
    """
    learning_rate_decay_steps: int = training_hparam(5000, COUNT, needs=WITH_EXP_DECAY)
    """Number of steps in which "exp_decay" multiplies the learning rate by
    learning_rate_decay_rate.
    """
    learning_rate_decay_staircase: bool = training_hparam(False, needs=WITH_EXP_DECAY)
    """True: "exp_decay" changes the learning rate only every learning_rate_decay_steps steps.
    False: in every step.
    """
    optimizer: str = training_hparam("adam", ["adam", "sgd", "momentum"])
    """The optimizer: "adam" (section 5.3), "sgd", or "momentum" for stochastic gradient descent
    with momentum.
    """
    optimizer_momentum_momentum: float = training_hparam(0.9, RATE, needs=WITH_MOMENTUM)
    """Decay rate of the sum of updates in "momentum"."""
    optimizer_momentum_nesterov: bool = training_hparam(False, needs=WITH_MOMENTUM)
    """True: Nesterov's form of "momentum", which computes an update from the next sum."""
    optimizer_adam_beta1: float = training_hparam(0.9, RATE, needs=WITH_ADAM)
    """Adam's decay rate of the first moment (section 5.3)."""
    optimizer_adam_beta2: float = training_hparam(0.98, RATE, needs=WITH_ADAM)
    """Adam's decay rate of the second moment (section 5.3)."""
    optimizer_adam_epsilon: float = training_hparam(1e-9, POSITIVE, needs=WITH_ADAM)
    """Adam's epsilon, which keeps the update finite (section 5.3)."""
    optimizer_adafactor_multiply_by_parameter_scale: bool = training_hparam(False, needs=WITH_ADAM)
    """True to multiply each update of a weight by its root mean square, as tensor2tensor's
    Adafactor does.
    """
    clip_grad_norm: float = training_hparam(0.0, NOT_NEGATIVE)
    """Largest Euclidean norm of all gradients of a step together; larger gradients are scaled down
    to it. 0, as in the paper, for no limit.
    """
    weight_decay: float = training_hparam(0.0, NOT_NEGATIVE)
    """Each step first multiplies every matrix by 1 - weight_decay * learning rate (Loshchilov and
    Hutter 2019). 0, as in the paper, for no decay. (tensor2tensor's weight_decay adds to the loss
    instead.)
    """
    frozen: str = training_hparam("", flag="freeze")
    """Parts of the names of weights that training leaves as they are, separated by commas:
    "embedding" or "encoder/layer_0", with * for any characters. "" trains all weights.
    """

    unused: ClassVar[Sequence[str]] = ()
    """Fields that the model does not use, so that they must have their defaults."""

    def __post_init__(self) -> None:
        _check_values(self)
        for name in self.unused:
            if getattr(self, name) != getattr(type(self), name):
                raise self._no_effect(name, self.model)
        _check_needs(self, self.affecting("weights", "outputs"))
        if "num_heads" not in self.unused:
            self._check_heads()
        if self.hidden_size % 2 == 1:
            raise UserError(f"hidden_size={self.hidden_size} must be even")
        is_relative = self.self_attention_type == "dot_product_relative"
        if is_relative and not self.max_relative_position:
            raise UserError(
                f"self_attention_type={self.self_attention_type} needs max_relative_position, e.g. "
                "max_relative_position=20"
            )
        samples_best = self.subword_alpha > 0 and self.subword_nbest_size >= 2
        if self.subword_nbest_size != -1 and not samples_best:
            raise UserError(
                f"subword_nbest_size={self.subword_nbest_size} has no effect; give 2 or more, and "
                "subword_alpha"
            )
        for factor in self.learning_rate_schedule.split("*"):
            refuse_unknown("factor of learning_rate_schedule", factor, SCHEDULE_FACTORS)

    def _check_heads(self) -> None:
        for name in ("attention_key_channels", "attention_value_channels"):
            name = name if getattr(self, name) else "hidden_size"
            if getattr(self, name) % self.num_heads:
                raise UserError(
                    f"num_heads={self.num_heads} does not divide {name}={getattr(self, name)}"
                )

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
        values = changed_values(hparams)
        if foreign := values.keys() - cls.__dataclass_fields__.keys():
            raise hparams._no_effect(min(foreign), changes.get("model", hparams.model))
        return cls(**{"model": hparams.model} | values | changes)

    def _no_effect(self, name: str, model: str) -> UserError:
        return UserError(
            f"{name}={getattr(self, name)} has no effect in the model {model}; omit it, or choose "
            "an hparams set of this model (--registry_help lists them)"
        )

    @classmethod
    def affecting(cls, *kinds: Affects) -> list[str]:
        """Returns the names of the fields that affect "weights", "outputs", "training" or
        "length"; see `Traits`.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        return [name for name in names if traits(cls, name).affects in kinds]

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


def transformer_only(*used: str) -> list[str]:
    """Returns the fields of `HParams` that the paper's model uses but not every model, except for
    the names `used`.

    A model with other layers gives them in the attribute `unused` of its class of hparams.
    """
    names = [field.name for field in dataclasses.fields(HParams) if field.name not in used]
    return [name for name in names if traits(HParams, name).is_transformer_only]


@dataclass(frozen=True)
class DecodeHParams:
    """The parameters of beam search (section 6.1) and of sampling. docs/decoding.md has the
    formulas.
    """

    beam_size: int = hparam(4, (1, 10_000))
    """Number of hypotheses that beam search keeps at each step; 1 is greedy search."""
    alpha: float = hparam(0.6, (0, 10))
    """Exponent of the length penalty ((5 + length) / 6) ** alpha (Wu et al. 2016, equation 14); 0
    disables it.
    """
    extra_length: int = hparam(50, OPTIONAL_WIDTH)
    """Maximum number of tokens by which an output may be longer than its input, or than input and
    prefix together.
    """
    batch_size: int = hparam(2048, COUNT)
    """Maximum number of source tokens that are decoded together, counting padding. It affects only
    speed and memory.
    """
    max_input_size: int = hparam(0, OPTIONAL_WIDTH)
    """Maximum length of an input, in tokens counting the end token; --long_lines says what happens
    to longer inputs. 0 means the model's max_length.
    """

    n: int = hparam(1, (1, 10_000))
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
    coverage_penalty: float = hparam(0.0, (0, 1000), needs={"sampling_method": ["argmax"]})
    """beta: strength of the coverage penalty (Wu et al. 2016, equation 14); 0 disables the penalty.
    """
    repeat_ngram_size: int = hparam(0, (0, 100))
    """Length in tokens of the n-grams that an output is penalized for repeating; 0 disables the
    penalty.
    """
    repeat_ngram_penalty: float = hparam(0.0, (0, math.inf))
    """Penalty in nats, subtracted from the log-probability of each token that completes a repeated
    n-gram; inf forbids the token.
    """

    sampling_method: str = hparam("argmax", ["argmax", "random"])
    """Either "argmax" for beam search, or "random" to sample n outputs from the model's
    distribution without a beam.
    """
    sampling_temp: float = hparam(1.0, (1e-3, POSITIVE[1]), needs=WITH_SAMPLING)
    """Temperature, by which logits are divided before a token is sampled."""
    sampling_keep_top_k: int = hparam(0, OPTIONAL_COUNT, needs=WITH_SAMPLING)
    """Number of most likely tokens from which sampling chooses; 0 means all tokens."""
    sampling_keep_top_p: float = hparam(1.0, (POSITIVE[0], 1), needs=WITH_SAMPLING)
    """p of nucleus sampling (Holtzman et al. 2020), which draws from the smallest set of tokens
    with probability p.
    """
    sampling_seed: int = hparam(0, (0, 2**63 - 1), needs=WITH_SAMPLING)
    """Seed of sampling. It and a line's number determine the line's outputs, except for rounding:
    with another batch_size or on another machine, about 1 output in 100 differs.
    """

    def __post_init__(self) -> None:
        _check_values(self)
        _check_needs(self, vars(self))
        size = self.repeat_ngram_size
        penalty = self.repeat_ngram_penalty
        if (size > 0) != (penalty > 0):
            raise UserError(
                f"repeat_ngram_size={size} and repeat_ngram_penalty={penalty}: give both or none"
            )
        if self.well_formed and penalty == math.inf:
            raise UserError(
                "repeat_ngram_penalty=inf can forbid all trees; give a finite penalty with "
                "well_formed=true"
            )
        if not self.is_random and self.n > self.beam_size:
            raise UserError(f"n={self.n} must be at most beam_size={self.beam_size}")

    @property
    def is_random(self) -> bool:
        """True if outputs are sampled, False if beam search finds them."""
        return self.sampling_method == "random"

    def __str__(self) -> str:
        shown = {"beam_size", "alpha", "extra_length", "batch_size", *changed_values(self)}
        if self.is_random:
            shown.remove("beam_size")
        return ", ".join(f"{name}={value}" for name, value in vars(self).items() if name in shown)


def changed_values(values: HParams | DecodeHParams) -> dict[str, Any]:
    """Returns the values that differ from the defaults of their fields, by name."""
    return {
        name: value for name, value in vars(values).items() if value != getattr(type(values), name)
    }


_type_hints: Callable[[type], dict[str, Any]] = functools.cache(typing.get_type_hints)


def _check_values(values: HParams | DecodeHParams) -> None:
    """Raises UserError if a field has a value of the wrong type, or a value that its traits do not
    allow.
    """
    kind = type(values)
    for name, value in vars(values).items():
        check_type(name, value, _type_hints(kind)[name])
        allowed = traits(kind, name).allowed
        if allowed and isinstance(value, str):
            refuse_unknown(name, value, allowed)
        elif allowed and not allowed[0] <= value <= allowed[1]:  # also refuses NaN
            raise UserError(f"{name}={value} must be in {allowed[0]} .. {allowed[1]}")


def _check_needs(values: HParams | DecodeHParams, names: Container[str]) -> None:
    """Raises UserError if one of the fields `names` is not at its default, and has no effect
    because another field lacks the value that it needs.
    """
    kind = type(values)
    for name, value in changed_values(values).items():
        needs = traits(kind, name).needs if name in names else {}
        for setting, needed in needs.items():
            chosen = text_of(getattr(values, setting))
            # An asterisk separates the factors of learning_rate_schedule.
            if not set(chosen.split("*")) & set(needed):
                raise UserError(
                    f"{name}={text_of(value)} has no effect with {setting}={chosen}; it needs "
                    f"{' or '.join(needed)} in {setting}. Change {setting}, or give "
                    f"{name}={text_of(getattr(kind, name))}"
                )


def text_of(value: Any) -> str:
    """Returns a value as in --hparams, and '""' for an empty string."""
    return str(value).lower() if isinstance(value, bool) else str(value) or '""'


def check_schedule(hparams: HParams) -> None:
    """Raises UserError if an hparam of training is not at its default and has no effect, such as
    one of another optimizer. Only training needs this check; see `Traits.needs`.
    """
    _check_needs(hparams, hparams.affecting("training", "length"))


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
    return with_changes(values, typed(type(values), assignments(text)))


def with_changes(values: T, changes: dict[str, Any]) -> T:
    """Returns a copy of dataclass `values` in which the fields have the values in `changes`, by
    name.
    """
    for name in changes:
        refuse_unknown(f"field of {type(values).__name__}", name, vars(values))
    copy = dataclasses.replace(values, **changes) if changes else values  # type: ignore[type-var]
    # beam_size has no trait `needs`, because a problem's default of it does no harm.
    if isinstance(copy, DecodeHParams) and copy.is_random and "beam_size" in changes:
        raise UserError(
            f"beam_size={copy.beam_size} has no effect with sampling_method=random; omit it"
        )
    return copy


def assignments(text: str) -> dict[str, str]:
    """Returns the texts of the values in `text`, such as "hidden_size=256,norm_before=true", by
    name.
    """
    changes: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise UserError(f"cannot read override {part!r}: write name=value, separated by commas")
        if name in changes:
            raise UserError(f"{name} is given twice in {text!r}")
        changes[name] = value
    return changes


def typed(kind: type, texts: Mapping[str, str]) -> dict[str, Any]:
    """Returns the values of fields of dataclass `kind` whose `texts` `assignments` returned."""
    hints = _type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]
    for name in texts:
        refuse_unknown(f"field of {kind.__name__}", name, names)
    return {name: parse_value(name, text, hints[name]) for name, text in texts.items()}


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
