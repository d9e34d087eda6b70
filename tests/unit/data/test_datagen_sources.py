"""Tests that datagen and t2t-reproduce refuse sources that they would overwrite or delete."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from folders import contents
from programs import refused, run
from t2t_repro import registry
from t2t_repro.data.datagen import generate_data
from t2t_repro.data.job import Options, source_files
from t2t_repro.errors import UserError
from toys import ENGLISH, GREEK, lines


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Writes text.en and text.el, and returns their path without the suffix."""
    for suffix, words in (("en", ENGLISH), ("el", GREEK)):
        (tmp_path / f"text.{suffix}").write_text("".join(f"{line}\n" for line in lines(40, words)), "utf-8")
    return tmp_path / "text"


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("text_files.dev.inputs", "text_files.dev.targets"),
        ("text_files-train-00007-of-00010", "copy"),
        ("copy", "text_files-dev-00000-of-00001.index"),
        ("copy", "datagen.json"),
        ("vocab.text_files.300.model", "copy"),
    ],
)
@pytest.mark.parametrize("copy", [shutil.copy, Path.symlink_to, Path.hardlink_to])
def test_a_source_that_the_run_would_write_or_delete_is_refused(
    text: Path, source: str, target: str, copy: object
) -> None:
    data = text.parent / "data"
    data.mkdir()
    for name, suffix in ((source, "en"), (target, "el")):
        shutil.copy(f"{text}.{suffix}", data / name)
    dev = [data / source, data / target]
    if copy is not shutil.copy:
        dev = [path.with_name(f"link to {path.name}") for path in dev]
        for link, name in zip(dev, (source, target), strict=True):
            copy(link, data / name)  # type: ignore[operator]
    before = contents(data)
    settings = {"train": f"{text}.en,{text}.el", "dev": f"{dev[0]},{dev[1]}", "vocab_size": 300}
    with pytest.raises(
        UserError, match=r"is also an input \(--dev\) and would be overwritten; choose another --data_dir"
    ):
        generate_data(registry.problem("text_files", settings), data, "", Options(overwrite=True))
    assert contents(data) == before


def test_the_sources_are_the_existing_files_that_a_setting_names(text: Path) -> None:
    (text.parent / "a,b").touch()
    settings = {"train": f" {text}.en , {text}.el,{text.parent}/a,b", "dev": "none,"}
    files = source_files(registry.problem("text_files", settings))
    assert [path.name for _, path in files] == ["text.en", "text.el", "a,b"]  # type: ignore[union-attr]
    long_setting = ",".join(f"{number:04}" for number in range(200, 300))
    assert source_files(registry.problem("wsj_parsing", {"train_sections": long_setting})) == []
    folder = text.parent / "trees"
    folder.mkdir()
    (folder / "a").touch()
    problem = registry.problem("wsj_parsing_semi", {"parsed_trees": str(folder)})
    assert source_files(problem) == [("--parsed_trees", folder / "a")]


def test_the_report_replaces_no_source(text: Path) -> None:
    model = text.parent / "model"
    model.mkdir()
    shutil.copy(f"{text}.en", model / "report.md")
    flags = [
        f"--train={text}.en,{text}.el",
        f"--dev={model}/report.md,{text}.el",
        "--vocab_size=300",
        "--train_steps=1",
    ]
    folders = [f"--data_dir={text.parent}/data", f"--output_dir={model}"]
    result = run("reproduce", "--hparams_set=transformer_tiny", "--problem=text_files", *flags, *folders)
    refused(result, "report.md is also an input (--dev)")
    assert (model / "report.md").read_bytes() == Path(f"{text}.en").read_bytes()
