"""Tests the problem text_files, which reads parallel text from the user's files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from t2t_repro import registry
from t2t_repro.errors import UserError


@pytest.mark.parametrize("value", ["", "a.en", "a.en,", ",a.de", "a,b,c"])
def test_each_split_needs_two_files(value: str) -> None:
    for split in ("train", "dev"):
        problem = registry.problem("text_files", {"train": "a.en,a.de", "dev": "b.en,b.de"} | {split: value})
        with pytest.raises(UserError, match=f"--{split}=.*: name two files"):
            problem.check()


def test_a_pipe_is_refused_because_the_text_is_read_twice(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match=f"^--train={tmp_path}/pipe: not a regular file; "):
        registry.problem("text_files", {"train": f"{tmp_path}/pipe,b", "dev": "a,b"}).check()


def test_the_target_language_comes_from_the_user_or_is_unknown() -> None:
    files = {"train": "a.en,a.de", "dev": "b.en,b.de"}
    texts = ["Der Hund lief z.B. nicht weg."]
    for name, languages, expected in (
        ("text_files", "", ""),
        ("text_files", "en,de", "de"),
        ("text_files_rev", " en , de ", "en"),
        ("text_files_rev", "en_US,fra", "en"),
        ("text_files", "en,zh-CN", "zh"),
    ):
        problem = registry.problem(name, files | {"languages": languages})
        problem.check()
        assert problem.target_language == expected
        signatures = [score.signature for score in problem.scores(texts, texts)]
        assert len(signatures) == (6 if expected in ("de", "en") else 4)
        assert all(f"-{expected}-escaped" in signature for signature in signatures[4:])
    for languages, message in (
        ("de", "--languages=de: name two languages"),
        ("en,german", "--languages: 'german' is no code"),
        ("en,de,fr", "--languages=en,de,fr: name two languages"),
    ):
        with pytest.raises(UserError, match=message):
            registry.problem("text_files", files | {"languages": languages}).check()
