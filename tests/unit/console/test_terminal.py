"""Tests that text is broken only between words, and commands so that they can be copied."""

import re
import shlex

import pytest

from t2t_repro.console.terminal import definitions, wrapped

COMMAND = "t2t-decoder --output_dir='a b' --decode_from_file=a-very/long-name.en"


@pytest.mark.parametrize("width", [50, 60, 80, 200])
def test_lines_fit_and_a_command_stays_one(width: int) -> None:
    text = (
        f"to decode: {COMMAND} --decode_to_file=out; an e-mail says --no-word is "
        f"\tlost\n\n{'x' * 90} end"
    )
    lines = wrapped(text, width).split("\n")
    assert all(len(line) <= width or line == "x" * 90 for line in lines)
    assert " ".join(" ".join(lines).replace("\\", "").split()) == " ".join(text.split())
    [command] = re.findall(r"t2t-decoder .*?;", wrapped(text, width).replace("\\\n", ""), re.DOTALL)
    assert shlex.split(command) == [*shlex.split(COMMAND), "--decode_to_file=out;"]


def test_the_second_column_and_indented_lines_hang() -> None:
    assert (
        definitions({"a": "word " * 20, "long": ""})
        == f"a     {'word ' * 14}word\n      {'word ' * 4}word\nlong"
    )
    assert (
        wrapped(f"  a row   {'text ' * 15}", 80) == f"  a row   {'text ' * 13}text\n          text"
    )
    assert wrapped(f"  --flag: {'text ' * 15}", 80) == f"  --flag: {'text ' * 13}text\n      text"
