"""Tests hparams overrides, and cut and joined lines, on random examples."""

import dataclasses
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from properties import few
from t2t_repro.data.vocabularies.text_rules import VISIBLE, is_empty
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding.long_lines import cut_texts, join_texts
from t2t_repro.decoding.translation import InputFile
from t2t_repro.errors import UserError
from t2t_repro.files.json_file import from_json, to_json
from t2t_repro.hparam import DecodeHParams, HParams, override

VALUES = {
    int: st.integers(-2, 2**33) | st.sampled_from([1, 2, 4, 8, 16, 64, 512]),
    float: st.floats() | st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    bool: st.booleans(),
    str: st.sampled_from(
        [
            "timing",
            "emb",
            "constant*noam",
            "linear_decay",
            "random",
            "argmax",
            "transformer",
            "",
            "x",
        ]
    ),
}
"""For each type of field, a Hypothesis strategy that draws values, many of them out of range."""


def values_of(defaults: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Returns a strategy that draws values for some fields of a dataclass, as {name of the field:
    value}.
    """
    values = {name: VALUES[type(value)] for name, value in dataclasses.asdict(defaults).items()}
    return st.fixed_dictionaries({}, optional=values)


def refused(call: Any, *arguments: Any) -> Any:
    """Returns the result of a call, or None if it raises a UserError. The error's message must be
    one line.
    """
    try:
        return call(*arguments)
    except UserError as error:
        assert "\n" not in str(error)
        return None


@pytest.mark.parametrize(
    "defaults", [HParams(), DecodeHParams()], ids=lambda defaults: type(defaults).__name__
)
@few
@given(data=st.data())
def test_an_override_gives_the_values_or_is_refused(defaults: Any, data: st.DataObject) -> None:
    values = data.draw(values_of(defaults))
    text = ",".join(f"{name}={value}" for name, value in values.items())
    overridden = refused(override, defaults, text)
    assert overridden == refused(lambda: dataclasses.replace(defaults, **values))
    if isinstance(overridden, HParams):
        assert from_json(HParams, to_json(overridden), "hparams.json") == overridden


@few
@given(
    st.lists(
        st.sampled_from(
            [*HParams.__dataclass_fields__, *"=,, -.1e0\n\0", "nan", "inf", "true", "9" * 5000]
        )
    )
)
@example(["num_heads", "=", "9" * 5000])
def test_any_text_is_an_override_or_is_refused(parts: list[str]) -> None:
    overridden = refused(override, HParams(), "".join(parts))
    assert overridden is None or isinstance(overridden, HParams)


CHARACTERS = "ab.!?,;:…。！)”\"' \t\u3000\u2028漢ü\U0001f600"  # noqa: RUF001
LINES = st.text(
    st.sampled_from(CHARACTERS)
    | st.characters(exclude_categories=["Cs"], exclude_characters="\ufdd0\ufdd1")
)


@pytest.mark.parametrize("long_lines", ["split", "sentences", "truncate"])
@few
@given(text=LINES, longest=st.integers(2, 12))
@example(text="a" * 40, longest=2)
@example(text="A. \x01\x02b. \u200b C", longest=9)
def test_a_long_line_is_cut_without_loss_and_joined_again(
    long_lines: str, text: str, longest: int, tiny_vocabulary: Vocabulary
) -> None:
    (segments,) = cut_texts([text], tiny_vocabulary, longest, long_lines, InputFile())
    assert [segment.number for segment in segments] == list(range(len(segments)))
    if long_lines == "truncate":
        assert all(len(segment.ids) <= longest for segment in segments) and len(segments) <= 1
        return
    for segment in segments:
        assert len(segment.ids) <= longest or len(segment.string.strip()) == 1
        (decoded,) = tiny_vocabulary.decode([segment.ids])
        assert decoded.strip() == segment.string.replace("\u2581", " ").strip()
    strings = [segment.string for segment in segments]
    assert not any(map(is_empty, strings))
    assert VISIBLE.findall("".join(strings)) == VISIBLE.findall(text)
    if strings:  # each segment, without outer white space, serves as its own translation
        assert (
            join_texts([string.strip() for string in strings], strings).split()
            == "".join(strings).split()
        )
