"""Tests that a corpus of augmented text is the same after any kill, and that at most one shard is
translated again.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from folders import contents
from t2t_repro import registry
from t2t_repro.console.progress import Progress
from t2t_repro.corpora.augmented import Augmentation, read_augmented
from t2t_repro.decoding import augmentation
from t2t_repro.decoding.translation import Hypothesis, Translation

TEXTS = ["one", "two", "", " three\tfour ", "drop", "six", "seven"]
NEW = Augmentation(
    {
        "lines": 7,
        "shard_lines": 3,
        "synthetic": "source",
        "train_tag": "<bt>",
        "long_lines": "",
        "target_language": "",
    },
    *("", "", "<bt>"),
    shards=3,
)


class Killed(BaseException):
    """Ends a run almost as a kill does: only `finally` blocks still run."""


class Upper:
    """A translator that writes capital letters, and nothing for "drop"."""

    def __init__(self) -> None:
        self.translated: list[int] = []

    def translate(self, texts: list[str], **options: Any) -> list[Translation]:
        for number in options["input_file"].line_numbers:
            self.translated.append(number)
            options["advance"](1)
        outputs = ["" if text == "drop" else text.upper() for text in texts]
        return [Translation((Hypothesis(output, -1.0),)) for output in outputs]


def augment(folder: Path, translator: Upper) -> Augmentation:
    """Translates the text x beside the folder."""
    problem = registry.problem("numbers_ende")
    text = str(folder.parent / "x")
    return augmentation.augment(translator, problem, text, folder, NEW)  # type: ignore[arg-type]


def killing(
    function: Callable[..., Any], calls: Iterator[int], last: int, is_late: bool
) -> Callable[..., Any]:
    """Returns the function, whose call number `last` ends the run, before or after its work."""

    def call(*arguments: Any) -> Any:
        is_last = next(calls) == last
        result = None if is_last and not is_late else function(*arguments)
        if is_last:
            raise Killed
        return result

    return call


@pytest.mark.parametrize("is_late", [False, True])
def test_a_kill_at_any_moment_changes_no_byte(
    tmp_path: Path, is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").write_text("".join(f"{text}\n" for text in TEXTS))
    assert augment(tmp_path / "whole", Upper()).pairs == 5
    targets = ["one", "two", "three four", "six", "seven"]
    pairs = [tuple(pair.values()) for pair in read_augmented(str(tmp_path / "whole"))]
    assert pairs == [(f"<bt> {target.upper()}", target) for target in targets]
    shards = {f"0000{number}.tsv.gz" for number in range(3)}
    assert {*contents(tmp_path / "whole")} == {"augment.json", *shards}
    for last in itertools.count():
        folder = tmp_path / str(last)
        translator = Upper()
        with monkeypatch.context() as patch:
            calls = itertools.count()
            for owner, name in ((Progress, "advance"), (augmentation, "write_file")):
                patch.setattr(owner, name, killing(getattr(owner, name), calls, last, is_late))
            with contextlib.suppress(Killed):
                augment(folder, translator)
                break
        result = augment(folder, translator)
        assert (result.pairs, result.dropped) == (5, 2)
        assert contents(folder) == contents(tmp_path / "whole")
        assert len(translator.translated) - 7 <= 3  # at most one shard again
    assert last == 7 + 2 * 3 + 1  # lines, shards with their counts, and augment.json at the start
