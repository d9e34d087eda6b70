"""Numbers from English to German."""

from __future__ import annotations

import pytest
from num2words import num2words

from t2t_repro import registry
from t2t_repro.errors import UserError

SIZE = 1500


def pairs(split: str, size: int = SIZE) -> list[tuple[str, str]]:
    problem = registry.problem("numbers_ende", {"train_size": size})
    return [(pair["inputs"], pair["targets"]) for pair in problem.generate(split, "")]


@pytest.fixture(scope="module")
def train() -> list[tuple[str, str]]:
    return pairs("train")


@pytest.fixture(scope="module")
def dev() -> list[tuple[str, str]]:
    return pairs("dev")


def test_there_are_as_many_as_asked_for_and_none_twice(
    train: list[tuple[str, str]], dev: list[tuple[str, str]]
) -> None:
    assert (len(train), len(dev)) == (SIZE, 500)
    assert len(set(train) | set(dev)) == SIZE + 500


def test_both_sides_name_the_same_number(train: list[tuple[str, str]], dev: list[tuple[str, str]]) -> None:
    translations = dict(train + dev)
    known = {num2words(number, lang="en"): num2words(number, lang="de") for number in range(1000)}
    found = translations.keys() & known.keys()
    assert len(found) > 50
    assert all(translations[english] == known[english] for english in found)
    assert known["three hundred and forty-two"] == "dreihundertzweiundvierzig"


def test_the_numbers_are_the_same_each_time_and_dev_is_the_same_for_any_size(dev: list[tuple[str, str]]) -> None:
    assert pairs("dev") == dev
    assert pairs("dev", 10) == dev
    assert pairs("train", 10) == pairs("train", 20)[:10]


def test_about_half_have_at_most_four_digits(train: list[tuple[str, str]]) -> None:
    digits = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    thousands = [english.partition(" thousand")[0] for english, _ in train if "thousand" in english]
    small = len(train) - len(thousands) + sum(words in digits for words in thousands)
    assert 0.45 < small / len(train) < 0.57


def test_no_text_has_white_space_at_its_ends_or_more_than_one_line(train: list[tuple[str, str]]) -> None:
    for text in (side for pair in train for side in pair):
        assert text == text.strip() and "\n" not in text and text


@pytest.mark.parametrize("size", [0, -1, 999_500, 10**9])
def test_more_numbers_than_there_are_is_an_error(size: int) -> None:
    with pytest.raises(UserError, match=f"--train_size={size} must be in"):
        registry.problem("numbers_ende", {"train_size": size}).check()


@pytest.mark.parametrize("size", [1, 20_000, 999_499])
def test_as_many_as_there_are_can_be_had(size: int) -> None:
    registry.problem("numbers_ende", {"train_size": size}).check()
