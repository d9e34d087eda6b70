"""Tests of t2t-datagen's flags: the number of processes, and the settings of a problem."""

import copy
import json
from pathlib import Path

import pytest

from programs import error
from t2t_repro.bin import program, t2t_datagen
from toys import ENGLISH, GREEK, lines

CODE = """
import sys
from t2t_repro import problem, registry
@registry.register_problem
class Mistake(problem.Problem):
    def generate(self, split, tmp_dir):
        yield {"inputs": "a", "targets": "b"}
        """


def generate(folder: Path, *flags: str) -> int:
    """Writes two text files, runs t2t-datagen on them in this process, and returns the exit code.

    `program.run` adds flags to its argument, so this function passes a copy of t2t-datagen's flags.
    """
    for name, words in (("a.en", ENGLISH), ("a.el", GREEK)):
        text = lines(50, words)
        (folder / name).write_text(
            "".join(line + "\n" for line in [*text, text[7], text[7]]), "utf-8"
        )
    both = f"{folder}/a.en,{folder}/a.el"
    data = ["--problem=text_files", f"--train={both}", f"--dev={both}", f"--data_dir={folder}/data"]
    size = [] if any(flag.startswith("--vocab_file=") for flag in flags) else ["--vocab_size=400"]
    argv = ["t2t_datagen.py", *data, *size, *flags]
    return program.run(
        t2t_datagen.main, copy.deepcopy(t2t_datagen.FLAGS), t2t_datagen.__doc__, argv
    )


@pytest.mark.parametrize(
    ("flags", "dropped"),
    [
        (["--clean_duplicates", "--num_concurrent_processes=1"], {"duplicate": 2}),
        (
            ["--clean_duplicates=false", "--clean_max_words=5", "--clean_max_ratio=1.5"],
            {"too many words": 10},
        ),
    ],
)
def test_settings_are_flags(tmp_path: Path, flags: list[str], dropped: dict[str, int]) -> None:
    assert generate(tmp_path, *flags) == 0
    description = json.loads((tmp_path / "data" / "text_files.json").read_text("utf-8"))
    assert description["dropped"] == {"train": dropped, "dev": {}}


def test_a_repeated_train_flag_adds_a_corpus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "a_name_that_is_longer_than_a_line" * 3
    (tmp_path / f"{name}.tsv").write_text(f"new {ENGLISH[0]}\t{GREEK[0]}\n \tx\n")
    assert (
        generate(
            tmp_path, f"--train={tmp_path}/{name}.tsv", "--clean_duplicates", "--clean_max_words=5"
        )
        == 0
    )
    description = json.loads((tmp_path / "data" / "text_files.json").read_text("utf-8"))
    assert (
        description["settings"]["train"] == f"{tmp_path}/a.en,{tmp_path}/a.el;{tmp_path}/{name}.tsv"
    )
    corpora = description["corpora"]["train"]
    assert [corpus["stop"] for corpus in corpora] == [40, 41] and description["pairs"][
        "train"
    ] == 41
    assert [corpus["dropped"] for corpus in corpora] == [
        {"too many words": 10, "duplicate": 2},
        {"empty side": 1},
    ]
    table = capsys.readouterr().err.partition("corpora of train")[2].partition("data: ")[0]
    assert max(map(len, table.splitlines()[1:10])) <= 80


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--num_concurrent_processes=-1"], "--num_concurrent_processes="),
        (["--clean_max_words=1.5"], "--clean_max_words=1.5: the value must be of type int"),
        (
            ["--clean_max_ratio=0.5"],
            "no pair is left in its train split (read 52, length ratio 52)",
        ),
        (["--clean_max_ratio=nan"], "--clean_max_ratio=nan must be in 0 .. 2147483647"),
        (["--clean_duplicate"], "clean_duplicates"),
        (["--source_vocab_file=x.model"], "--source_vocab_file has no effect without --vocab_file"),
        (
            ["--vocab_file=x.model", "--vocab_size=320"],
            "--vocab_size has no effect with --vocab_file",
        ),
        (["--vocab_file=no.model"], "no.model: "),
    ],
)
def test_a_wrong_setting_is_an_error_and_no_data_is_written(
    flags: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate(tmp_path, *flags) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1 and message in captured.err
    assert not (tmp_path / "data").exists()


def test_a_setting_without_problem_is_explained(tmp_path: Path) -> None:
    message = error("datagen", "--vocab_size=300", f"--data_dir={tmp_path}")
    assert message.startswith("Unknown command line flag 'vocab_size'.")
    assert message.endswith("; if it is a setting of a problem, also give --problem")
    assert error("datagen", "--problem=numbers_ende", "--data_dir=").startswith(
        "--data_dir is required"
    )


@pytest.mark.parametrize("mistake", ["raise ValueError", "exit()", "sys.exit('x')"])
def test_a_mistake_in_user_code_is_named(mistake: str, tmp_path: Path) -> None:
    (tmp_path / "usr_mistake").mkdir()
    (tmp_path / "usr_mistake" / "__init__.py").write_text(CODE + mistake)
    flags = (
        "--problem=mistake",
        f"--t2t_usr_dir={tmp_path / 'usr_mistake'}",
        f"--data_dir={tmp_path}/data",
    )
    assert (
        f"usr_mistake/__init__.py:8: {'ValueError' if 'V' in mistake else 'SystemExit'}"
        in error("datagen", *flags)
    )
    assert not (tmp_path / "data").exists()
