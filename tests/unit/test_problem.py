"""Tests that the settings of a problem inherit help texts, and may have new help texts."""

from dataclasses import dataclass
from typing import Any

import pytest

from programs import error
from t2t_repro import registry
from t2t_repro.errors import UserError
from t2t_repro.problem import Problem, setting


class Mine(Problem):
    """A problem with three settings: an inherited one with a new default, one with help, and one
    without help.
    """

    @dataclass(frozen=True)
    class Settings(Problem.Settings):
        vocab_size: int = setting(37000)
        clean_max_words: int = setting(9, "drop long pairs")
        plain: str = ""


def test_a_setting_inherits_its_help_or_has_its_own() -> None:
    assert Mine.setting_help("vocab_size") == Problem.setting_help("vocab_size") != ""
    assert Mine.setting_help("clean_max_words") == "drop long pairs"
    assert (Mine.setting_help("plain"), Mine.setting_help("unknown")) == ("", "")


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        (
            "wsj_parsing",
            {"vocab_size": True},
            "settings of problem 'wsj_parsing': vocab_size=True must be of type int",
        ),
        (
            "wsj_parsing",
            {"vocab_siz": 3},
            "settings of problem 'wsj_parsing': unknown .*did you mean 'vocab_size'",
        ),
        ("wsj_parsing", {"word_symbol": "foo"}, "unknown --word_symbol 'foo'"),
        ("t2t_text", {"target_space": 32}, "target_space=32 must be 0 to 31"),
    ],
)
def test_a_setting_out_of_range_in_a_file_is_refused(
    name: str, settings: dict[str, Any], message: str
) -> None:
    """A model folder may come from a stranger, and only t2t-datagen calls `check`."""
    with pytest.raises(UserError, match=message):
        registry.problem(name, settings)


def test_settings_that_are_no_dataclass_are_refused() -> None:
    with pytest.raises(
        UserError,
        match=r"problem Forgetful: write @dataclass\(frozen=True\) above the class Settings",
    ):

        class Forgetful(Problem):
            class Settings(Problem.Settings):
                vocab_size: int = setting(300)


def test_changed_settings_differ_from_the_defaults_of_any_problem() -> None:
    class Strict(Mine):
        def __init__(self, settings: dict[str, Any], was_reversed: bool, name: str) -> None:
            super().__init__({"plain": "b"} | settings, was_reversed, name)

    assert Strict({"vocab_size": 9}, True, "strict").changed_settings == {"vocab_size": 9}


def test_a_setting_with_the_name_of_a_flag_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Repeated(Mine):
        @dataclass(frozen=True)
        class Settings(Mine.Settings):
            overwrite: bool = setting(False)

    monkeypatch.setitem(registry._problems._objects, "repeated", Repeated)
    assert "'overwrite' is defined twice" in error("datagen", "--problem=repeated", "--data_dir=D")
