"""Tests that the settings of a problem inherit help texts, and may have new help texts."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from t2t_repro import registry
from t2t_repro.problem import Problem, setting


class Mine(Problem):
    """A problem with three settings: an inherited one with a new default, one with help, and one without help."""

    @dataclass(frozen=True)
    class Settings(Problem.Settings):
        vocab_size: int = setting(37000)
        clean_max_words: int = setting(9, "drop long pairs")
        plain: str = ""


@pytest.mark.parametrize("problem", [Mine, registry.problem_class("wmt_ende"), registry.problem_class("numbers_ende")])
def test_a_setting_with_another_default_inherits_its_help(problem: type[Problem]) -> None:
    assert problem.setting_help("vocab_size") == Problem.setting_help("vocab_size") != ""


def test_a_settings_own_help_comes_first_and_help_may_be_missing() -> None:
    assert Mine.setting_help("clean_max_words") == "drop long pairs"
    assert (Mine.setting_help("plain"), Mine.setting_help("unknown")) == ("", "")
