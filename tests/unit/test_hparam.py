"""Tests of overrides and validation of hyper-parameters."""

from __future__ import annotations

import dataclasses

import pytest

from t2t_repro.errors import UserError
from t2t_repro.hparam import DecodeHParams, HParams, override, parse_value, refuse_decode_hparams
from t2t_repro.hparam_checks import check_schedule


def test_the_default_search_is_the_papers() -> None:
    assert (DecodeHParams().beam_size, DecodeHParams().alpha, DecodeHParams().extra_length) == (4, 0.6, 50)


def test_fields_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        HParams().hidden_size = 1  # type: ignore[misc]


def test_an_override_has_the_type_of_its_field() -> None:
    base = HParams()
    changed = override(base, "hidden_size=256, norm_before=true,norm_epsilon=1e-5,pos=emb,label_smoothing=0")
    assert changed == dataclasses.replace(
        HParams(), hidden_size=256, norm_before=True, norm_epsilon=1e-5, pos="emb", label_smoothing=0.0
    )
    assert type(changed.label_smoothing) is float
    assert base == HParams()


@pytest.mark.parametrize("text", ["", " ", ",", "hidden_size=512", "hidden_size=512,"])
def test_an_empty_override_and_a_trailing_comma_are_accepted(text: str) -> None:
    assert override(HParams(), text) == HParams()


@pytest.mark.parametrize(("text", "value"), [("true", True), ("False", False), ("1", True), ("0", False)])
def test_bools_are_true_false_1_and_0(text: str, value: bool) -> None:
    assert override(HParams(), f"norm_before={text}").norm_before is value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hidden_size=1.0", "hidden_size=1.0: the value must be of type int"),
        ("hidden_size=1e3", "hidden_size=1e3: the value must be of type int"),
        ("hidden_size=", "hidden_size=: the value must be of type int"),
        ("norm_before=yes", "norm_before=yes: the value must be true or false"),
        ("norm_before=2", "norm_before=2: the value must be true or false"),
        ("norm_epsilon=small", "norm_epsilon=small: the value must be of type float"),
        ("hiden_size=256", "unknown field of HParams 'hiden_size'; did you mean 'hidden_size'?"),
        ("hidden_size=256,hidden_size=256", "hidden_size is given twice"),
        ("hidden_size", "cannot read override 'hidden_size': write name=value"),
        ("hidden_size:256", "cannot read override 'hidden_size:256'"),
        ("hidden_size=256 num_heads=4", "hidden_size=256 num_heads=4: the value must be of type int"),
        ("=256", "unknown field of HParams ''"),
        ("key_channels=64", "unknown field of HParams 'key_channels'"),
        ("num_heads=7", "num_heads=7 does not divide hidden_size=512"),
    ],
)
def test_an_invalid_override_is_an_error_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        override(HParams(), text)
    assert message in str(error.value)


def test_any_dataclass_can_be_overridden() -> None:
    assert override(DecodeHParams(), "beam_size=1,alpha=0") == DecodeHParams(beam_size=1, alpha=0.0)
    with pytest.raises(UserError, match="field of DecodeHParams"):
        override(DecodeHParams(), "hidden_size=1")


def test_a_string_is_not_parsed() -> None:
    assert parse_value("--train", "a.en=b,c", str) == "a.en=b,c"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("num_hidden_layers=0", "num_hidden_layers=0 must be 1 or more"),
        ("batch_size=-1", "batch_size=-1 must be 1 or more"),
        ("layer_prepostprocess_dropout=1", "layer_prepostprocess_dropout=1.0 must be in [0, 1)"),
        ("label_smoothing=-0.1", "label_smoothing=-0.1 must be in [0, 1)"),
        ("norm_epsilon=0", "norm_epsilon=0.0 must be 1e-37 or more"),
        ("optimizer_adam_epsilon=1e-60", "optimizer_adam_epsilon=1e-60 must be 1e-37 or more"),
        ("norm_epsilon=nan", "norm_epsilon=nan must be 1e-37 or more"),
        ("optimizer_adam_beta2=1", "optimizer_adam_beta2=1.0 must be in [0, 1)"),
        ("attention_key_channels=100", "num_heads=8 does not divide attention_key_channels=100"),
        ("self_attention_neighborhood=-1", "self_attention_neighborhood=-1 must be 0 or more; 0 is all positions"),
        ("attention_value_channels=-8", "attention_value_channels=-8 must be 0 or more; 0 is hidden_size"),
        ("num_heads=1000000", "num_heads=1000000 does not divide hidden_size=512; give a divisor, e.g. 512"),
        ("num_heads=1000000000000", "num_heads=1000000000000 must be at most 1048576"),
        ("num_hidden_layers=1001", "num_hidden_layers=1001 must be at most 1000"),
        ("train_steps=3000000000", "train_steps=3000000000 must be at most 2147483647"),
        ("learning_rate_constant=inf", "learning_rate_constant=inf must be at most 1e+38"),
        ("initializer_gain=1e300", "initializer_gain=1e+300 must be at most 1e+38"),
        ("hidden_size=9,num_heads=1", "hidden_size=9 must be even"),
        ("pos=timings", "unknown pos 'timings'; did you mean 'timing'?"),
        ("self_attention_type=relative", "unknown self_attention_type 'relative'"),
        ("max_relative_position=-1", "max_relative_position=-1 must be 0 or more"),
        ("max_relative_position=20", "relative self-attention needs both"),
        ("self_attention_type=dot_product_relative", "relative self-attention needs both"),
        (
            "self_attention_type=dot_product_relative,max_relative_position=9,self_attention_neighborhood=4",
            "self_attention_neighborhood=4 cannot be combined with self_attention_type=dot_product_relative",
        ),
        ("shared_embedding=true", "shared_embedding=true has no effect with shared_embedding_and_softmax_weights=true"),
        (
            "learning_rate_schedule=constant*noan",
            "unknown factor of learning_rate_schedule 'noan'; did you mean 'noam'?",
        ),
        ("learning_rate_schedule=", "unknown factor of learning_rate_schedule ''"),
    ],
)
def test_values_out_of_range_are_refused(text: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        override(HParams(), text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("beam_size=0", "beam_size=0 must be 1 or more"),
        ("batch_size=0", "batch_size=0 must be 1 or more"),
        ("alpha=-1", "alpha=-1.0 must be 0 or more"),
        ("alpha=nan", "alpha=nan must be 0 or more"),
        ("extra_length=-1", "extra_length=-1 must be 0 or more"),
        ("max_input_size=1", "max_input_size=1 has room only for the end token"),
        ("max_input_size=-1", "max_input_size=-1 is not a limit: give 0 for the model's max_length, or a large number"),
        ("n=0", "n=0 must be 1 or more"),
        ("n=5", "n=5 must be at most beam_size=4"),
        ("alpha=inf", "alpha=inf must be at most 10"),
        ("coverage_penalty=-0.1", "coverage_penalty=-0.1 must be 0 or more"),
        ("coverage_penalty=inf", "coverage_penalty=inf must be at most 1000"),
        ("coverage_penalty=nan", "coverage_penalty=nan"),
        ("repeat_ngram_size=2", "repeat_ngram_size=2 and repeat_ngram_penalty=0.0: one has no effect without the"),
        ("repeat_ngram_penalty=inf", "repeat_ngram_size=0 and repeat_ngram_penalty=inf: one has no effect"),
        ("repeat_ngram_size=-1", "repeat_ngram_size=-1 must be 0 or more"),
        ("repeat_ngram_size=2,repeat_ngram_penalty=-1", "repeat_ngram_penalty=-1.0 must be 0 or more"),
        ("repeat_ngram_size=2,repeat_ngram_penalty=nan", "repeat_ngram_penalty=nan"),
        (
            "repeat_ngram_size=2,repeat_ngram_penalty=inf,well_formed=true",
            "repeat_ngram_penalty=inf can forbid all trees",
        ),
        ("sampling_method=randon", "unknown sampling_method 'randon'; did you mean 'random'?"),
        ("sampling_temp=0.5", "sampling_temp=0.5 needs sampling_method=random"),
        ("sampling_keep_top_k=5", "sampling_keep_top_k=5 needs sampling_method=random"),
        ("sampling_keep_top_p=0.9", "sampling_keep_top_p=0.9 needs sampling_method=random"),
        ("extra_length=2147483647", "extra_length=2147483647 must be at most 1048576"),
        ("max_input_size=2147483647", "max_input_size=2147483647 must be at most 1048576"),
        ("alpha=60", "alpha=60.0 must be at most 10"),
        ("coverage_penalty=1e39", "coverage_penalty=1e+39 must be at most 1000"),
        ("repeat_ngram_size=2000,repeat_ngram_penalty=1", "repeat_ngram_size=2000 must be at most 100"),
        ("sampling_seed=1", "sampling_seed=1 needs sampling_method=random"),
        ("sampling_method=random,sampling_temp=0", "sampling_temp=0.0 must be 0.001 or more"),
        ("sampling_method=random,sampling_temp=inf", "sampling_temp=inf must be at most 1e+38"),
        ("sampling_method=random,sampling_temp=nan", "sampling_temp=nan must be 0.001 or more"),
        ("sampling_method=random,sampling_keep_top_k=-1", "sampling_keep_top_k=-1 must be 0 or more"),
        ("sampling_method=random,sampling_keep_top_p=0", "sampling_keep_top_p=0.0 must be above 0 and at most 1"),
        ("sampling_method=random,sampling_keep_top_p=1.1", "sampling_keep_top_p=1.1 must be above 0 and at most 1"),
        ("sampling_method=random,sampling_seed=-1", "sampling_seed=-1 must be 0 or more"),
        ("sampling_method=random,sampling_seed=9223372036854775808", "sampling_seed=9223372036854775808 must be"),
        ("sampling_method=random,coverage_penalty=0.1", "coverage_penalty orders a beam; sampling_method=random has"),
        (
            "sampling_method=random,beam_size=4",
            "beam_size=4 has no effect with sampling_method=random",
        ),
    ],
)
def test_decode_hparams_out_of_range_or_contradictory_are_refused(text: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        override(DecodeHParams(), text)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 1),
        ("n=3", 3),
        ("sampling_method=random", 1),
        ("sampling_method=random,n=30", 30),  # n may exceed beam_size, because sampling has no beam
        ("repeat_ngram_size=3,repeat_ngram_penalty=inf,coverage_penalty=0.2", 1),
    ],
)
def test_the_number_of_outputs(text: str, count: int) -> None:
    params = override(DecodeHParams(), text)
    assert params.n == count
    assert params.is_random == ("random" in text)


def test_decode_hparams_print_the_main_fields_and_those_that_differ_from_the_defaults() -> None:
    assert str(DecodeHParams()) == "beam_size=4, alpha=0.6, extra_length=50, batch_size=2048"
    random = DecodeHParams(sampling_method="random")
    assert str(random) == "alpha=0.6, extra_length=50, batch_size=2048, sampling_method=random"
    changed = override(DecodeHParams(), "alpha=1,n=2,prefix_file=x.de,batch_size=10,max_input_size=9")
    assert str(changed) == (
        "beam_size=4, alpha=1.0, extra_length=50, batch_size=10, max_input_size=9, n=2, prefix_file=x.de"
    )
    assert override(DecodeHParams(), str(changed)) == changed


def test_a_field_without_effect_is_refused_only_if_the_user_sets_it() -> None:
    names = ["prefix_file", "n"]
    refuse_decode_hparams(DecodeHParams(beam_size=7), names, "it writes one")
    with pytest.raises(UserError, match="n=2 has no effect here: it writes one"):
        refuse_decode_hparams(DecodeHParams(n=2), names, "it writes one")
    refuse_decode_hparams(DecodeHParams(n=2), names, "it writes one", defaults=DecodeHParams(n=2))
    with pytest.raises(UserError, match="n=1 has no effect here"):
        refuse_decode_hparams(DecodeHParams(), names, "it writes one", defaults=DecodeHParams(n=2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            "learning_rate_schedule=noam,learning_rate_constant=0.5",
            "learning_rate_constant=0.5 has no effect with learning_rate_schedule=noam; add the factor constant, "
            'e.g. "constant*noam", or give learning_rate_constant=1.0',
        ),
        (
            "learning_rate_schedule=constant,learning_rate_warmup_steps=8000",
            "learning_rate_warmup_steps=8000 has no effect with learning_rate_schedule=constant; add the factor "
            'linear_warmup, e.g. "linear_warmup*constant", or give learning_rate_warmup_steps=4000',
        ),
    ],
)
def test_an_hparam_that_no_factor_of_the_schedule_uses_is_an_error(changes: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        check_schedule(override(HParams(), changes))
    assert str(error.value) == message
