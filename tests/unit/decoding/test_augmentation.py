"""Tests that a corpus of augmented text is the same after any kill, and that no finished line is translated again."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from folders import contents
from t2t_repro import registry
from t2t_repro.corpora.augmented import Augmentation, read_augmented
from t2t_repro.decoding import augmentation
from t2t_repro.decoding.augmentation import Augmenter
from t2t_repro.decoding.journal import Journal
from t2t_repro.decoding.translation import Hypothesis, Translation

TEXTS = ["one", "two", "", " three\tfour ", "drop", "six", "seven"]
SETTINGS = Augmentation(
    problem="x", checkpoint="", model="", decode_hparams={}, long_lines="split", precision="", text="", lines=7,
    synthetic="source", source_language="", target_language="", train_tag="<bt>", shard_lines=3, shards=3,
)  # fmt: skip


class Killed(BaseException):
    """Ends a run almost as a kill does: only `finally` blocks still run."""


class Upper:
    """A translator that writes capital letters, and nothing for "drop"."""

    def __init__(self) -> None:
        self.translated: list[int] = []

    def stream(self, texts: list[str], prefixes: object, **options: Any) -> Iterator[tuple[int, Translation]]:
        for index in reversed(range(len(texts))):
            self.translated.append(options["input_file"].line_numbers[index])
            yield index, Translation((Hypothesis("" if texts[index] == "drop" else texts[index].upper(), -1.0),))


def augment(folder: Path, translator: Upper, text: Path) -> Augmentation:
    problem = registry.problem("numbers_ende")
    return Augmenter(translator, problem, str(text), folder).run(SETTINGS)  # type: ignore[arg-type]


def killing(function: Callable[..., Any], calls: Iterator[int], last: int, is_late: bool) -> Callable[..., Any]:
    """Returns the function, whose call number `last` ends the run, before or after its work."""

    def call(*arguments: Any) -> Any:
        number = next(calls)
        if number == last and not is_late:
            raise Killed
        result = function(*arguments)
        if number == last:
            raise Killed
        return result

    return call


@pytest.mark.parametrize("is_late", [False, True])
def test_a_kill_at_any_moment_changes_no_byte(tmp_path: Path, is_late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").write_text("".join(f"{text}\n" for text in TEXTS))
    assert augment(tmp_path / "whole", Upper(), tmp_path / "x").pairs == 5
    pairs = [("<bt> ONE", "one"), ("<bt> TWO", "two"), ("<bt> THREE FOUR", "three four"), ("<bt> SIX", "six")]
    assert [tuple(pair.values()) for pair in read_augmented(tmp_path / "whole")] == [*pairs, ("<bt> SEVEN", "seven")]
    for last in itertools.count():
        folder, translator = tmp_path / str(last), Upper()
        with monkeypatch.context() as patch:
            calls = itertools.count()
            for owner, name in ((Journal, "add"), (Journal, "delete"), (augmentation, "write_file")):
                patch.setattr(owner, name, killing(getattr(owner, name), calls, last, is_late))
            try:
                augment(folder, translator, tmp_path / "x")
                break
            except Killed:
                pass
        result = augment(folder, translator, tmp_path / "x")
        assert (result.pairs, result.dropped) == (5, 2)
        assert contents(folder) == contents(tmp_path / "whole")
        assert len(translator.translated) - 7 <= (0 if is_late else 1)  # at most the line of the kill
    assert last == 7 + 2 * 3 + 3 + 1  # lines, shards with their counts, journals, and augment.json at the start
