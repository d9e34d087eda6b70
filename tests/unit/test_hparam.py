"""Tests of overrides and validation of hyper-parameters."""

from dataclasses import dataclass, replace

import pytest

from t2t_repro.hparam import (
    DecodeHParams,
    HParams,
    check_schedule,
    hparam,
    override,
    parse_value,
    refuse_decode_hparams,
)
from user_errors import user_error

RELATIVE = "self_attention_type=dot_product_relative"
RANDOM = "sampling_method=random"


@dataclass(frozen=True)
class MyHParams(HParams):
    """Hparams of a user's model."""

    model: str = "mine"
    depth: int = hparam(2, (1, 9))
    share: float = 0.5
    cell: str = hparam("gru", ["gru", "lstm"], affects="outputs")
    forget: float = hparam(0.0, affects="training", needs={"cell": ["lstm"]})
    slope: float = hparam(0.1, affects="outputs", needs={"depth": ["1", "2"], "cell": ["lstm"]})
    pos: str = "none"

    unused = ("num_heads", "filter_size")


def test_an_override_has_the_type_of_its_field() -> None:
    changed = override(
        HParams(), "hidden_size=256, norm_before=true,norm_epsilon=1e-5,pos=emb,label_smoothing=0,"
    )
    assert changed == replace(
        HParams(),
        hidden_size=256,
        norm_before=True,
        norm_epsilon=1e-5,
        pos="emb",
        label_smoothing=0.0,
    )
    assert type(changed.label_smoothing) is float
    assert override(HParams(), " , ") == HParams()
    assert [parse_value("x", text, bool) for text in ("true", "False", "1", "0")] == [
        True,
        False,
        True,
        False,
    ]
    mine = override(MyHParams(hidden_size=10), "depth=3,share=1")
    assert (mine.model, mine.depth, mine.share, mine.hidden_size) == ("mine", 3, 1.0, 10)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hidden_size=1.0", "of type int"),
        ("norm_before=yes", "true or false"),
        ("hiden_size=256", "did you mean 'hidden_size'?"),
        ("unused=256", "'unused'"),
        ("hidden_size=256,hidden_size=256", "hidden_size is given twice"),
        ("hidden_size:256", "write name=value"),
        ("num_hidden_layers=1001", "must be in 1 .. 1000"),
        ("num_decoder_layers=-1", "must be in 0 .. 1000"),
        ("num_heads=7", "num_heads=7 does not divide hidden_size=512"),
        ("attention_key_channels=100", "num_heads=8 does not divide attention_key_channels=100"),
        ("attention_value_channels=-8", "attention_value_channels=-8"),
        ("hidden_size=9,num_heads=1", "must be even"),
        ("train_steps=3000000000", "train_steps=3000000000"),
        ("layer_prepostprocess_dropout=1", "layer_prepostprocess_dropout=1.0"),
        ("norm_epsilon=nan", "norm_epsilon=nan"),
        ("optimizer_adam_epsilon=1e-60", "optimizer_adam_epsilon=1e-60"),
        ("pos=timings", "did you mean 'timing'?"),
        ("max_relative_position=20", "needs dot_product_relative in self_attention_type"),
        (RELATIVE, "needs max_relative_position, e.g. max_relative_position=20"),
        (
            f"{RELATIVE},max_relative_position=9,self_attention_neighborhood=4",
            "self_attention_neighborhood=4 has no effect with "
            "self_attention_type=dot_product_relative",
        ),
        ("subword_nbest_size=8", "subword_alpha"),
        ("subword_alpha=0.1,subword_nbest_size=1", "2 or more"),
        ("shared_embedding=true", "shared_embedding=true has no effect"),
        ("learning_rate_schedule=constant*noan", "did you mean 'noam'?"),
    ],
)
def test_wrong_hparams_are_refused(text: str, words: str) -> None:
    assert words in user_error(override, HParams(), text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hidden_size=1", "field of DecodeHParams"),
        ("beam_size=0", "beam_size=0"),
        ("alpha=60", "must be in 0 .. 10"),
        ("n=5", "n=5 must be at most beam_size=4"),
        ("repeat_ngram_size=2", "give both or none"),
        (
            "repeat_ngram_size=2,repeat_ngram_penalty=inf,well_formed=true",
            "repeat_ngram_penalty=inf",
        ),
        ("sampling_method=randon", "did you mean 'random'?"),
        ("sampling_seed=1", "needs random in sampling_method"),
        (f"{RANDOM},sampling_temp=0", "sampling_temp=0.0"),
        (f"{RANDOM},sampling_keep_top_p=1.1", "sampling_keep_top_p=1.1"),
        (f"{RANDOM},sampling_keep_top_p=0", "sampling_keep_top_p=0.0"),
        (f"{RANDOM},coverage_penalty=0.1", "needs argmax in sampling_method"),
        (f"{RANDOM},beam_size=4", "beam_size=4 has no effect"),
    ],
)
def test_wrong_decode_hparams_are_refused(text: str, words: str) -> None:
    assert words in user_error(override, DecodeHParams(), text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("depth=10", "depth=10 must be in 1 .. 9"),
        ("cell=lstn", "did you mean 'lstm'?"),
        ("pos=timings", "did you mean 'timing'?"),
        ("slope=0.2", "slope=0.2 has no effect with cell=gru; it needs lstm in cell"),
        ("cell=lstm,depth=3,slope=0.2", "it needs 1 or 2 in depth. Change depth, or"),
        ("filter_size=8", "filter_size=8 has no effect in the model mine"),
    ],
)
def test_wrong_hparams_of_a_users_model_are_refused(text: str, words: str) -> None:
    assert words in user_error(override, MyHParams(), text)


def test_valid_searches() -> None:
    # n may exceed beam_size: sampling has no beam.
    assert override(DecodeHParams(), f"{RANDOM},n=30").n == 30
    penalties = "repeat_ngram_size=3,repeat_ngram_penalty=inf,coverage_penalty=0.2"
    assert override(DecodeHParams(), f"n=4,{penalties}").n == 4
    common = "alpha=0.6, extra_length=50, batch_size=2048"
    assert str(DecodeHParams(n=2)) == f"beam_size=4, {common}, n=2"
    sampling = DecodeHParams(sampling_method="random")
    assert str(sampling) == f"{common}, sampling_method=random"


def test_a_field_without_effect_is_refused_only_if_the_user_sets_it() -> None:
    refuse_decode_hparams(DecodeHParams(beam_size=7), ["n"], "it writes one")
    refuse_decode_hparams(DecodeHParams(n=2), ["n"], "it writes one", defaults=DecodeHParams(n=2))
    assert "n=2 has no effect here: it writes one" in user_error(
        refuse_decode_hparams, DecodeHParams(n=2), ["prefix_file", "n"], "it writes one"
    )


def test_hparams_of_another_model_keep_what_both_have() -> None:
    mine = MyHParams(hidden_size=8, depth=4)
    assert MyHParams.of(HParams(hidden_size=8), model="mine", depth=4) == mine
    assert HParams.of(MyHParams(hidden_size=8), model="transformer") == HParams(hidden_size=8)
    assert "depth=4 has no effect in the model transformer" in user_error(
        HParams.of, mine, model="transformer"
    )
    assert "hidden_size='256' must be of type int" in user_error(HParams, hidden_size="256")
    # Classes may have different defaults of a field that both have.
    assert MyHParams.of(HParams()).pos == "none" and HParams.of(MyHParams()).pos == "timing"
    assert MyHParams.of(HParams(pos="emb")).pos == HParams.of(MyHParams(pos="emb")).pos == "emb"


def test_an_hparam_of_training_without_effect_is_refused_only_before_training() -> None:
    check_schedule(MyHParams(cell="lstm", forget=0.1))
    assert "give forget=0.0" in user_error(check_schedule, MyHParams(forget=0.1))
