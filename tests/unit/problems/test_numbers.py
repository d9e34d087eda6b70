"""Tests the problem numbers_ende, which translates numbers in English words to German words."""

import pytest
from num2words import num2words
from sacrebleu import corpus_chrf

from t2t_repro import registry
from t2t_repro.errors import UserError

SIZE = 500


def pairs(split: str, size: int = SIZE) -> list[tuple[str, str]]:
    problem = registry.problem("numbers_ende", {"train_size": size})
    return [(pair["inputs"], pair["targets"]) for pair in problem.generate(split, "")]


def test_all_numbers_differ_and_both_sides_name_the_same_number() -> None:
    train = pairs("train")
    dev = pairs("dev")
    assert (len(train), len(dev), len(set(train) | set(dev))) == (SIZE, 500, SIZE + 500)
    below_thousand = {
        num2words(number, lang="en"): num2words(number, lang="de") for number in range(1000)
    }
    drawn = [(english, german) for english, german in train + dev if english in below_thousand]
    assert len(drawn) > 20 and all(below_thousand[english] == german for english, german in drawn)
    assert pairs("dev", 10) == dev and pairs("train", 10) == train[:10]


@pytest.mark.parametrize("size", [0, 999_500])
def test_an_impossible_train_size_is_an_error(size: int) -> None:
    with pytest.raises(UserError, match=f"--train_size={size} must be in"):
        registry.problem("numbers_ende", {"train_size": size}).check()


def test_scores_are_exact_matches_and_chrf() -> None:
    references = ["eins", "zwei", "drei", "vier"]
    outputs = ["eins", "zwei", "drei ", "hundert"]
    exact, chrf, lower_cased = registry.problem("numbers_ende").scores(outputs, references)
    assert (exact.label, exact.score) == ("exact matches", 50.0)
    assert chrf.score == pytest.approx(corpus_chrf(outputs, [references]).score)
    assert [chrf.label, lower_cased.label] == ["chrF", "chrF, lower-cased"]
