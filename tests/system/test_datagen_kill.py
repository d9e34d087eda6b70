"""If t2t-datagen is killed and started again, it writes the same files as an undisturbed run, and no other files."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from folders import contents
from programs import command, succeed, write_pairs
from t2t_repro.data.job import LOCK

PAIRS, SHARDS = 10_000, 10


@pytest.fixture(scope="module")
def flags(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Writes 10,301 pairs of text and returns t2t-datagen's flags without --data_dir.

    With these flags t2t-datagen must drop the duplicate pairs and one pair that is too long.
    """
    folder = tmp_path_factory.mktemp("text")
    numbers = [number % 9000 * 97 for number in range(PAIRS)] + [10**30 + 123_456_789_012_345_678]
    train, dev = write_pairs(folder, "train", numbers), write_pairs(folder, "dev", range(300))
    return [
        "--problem=text_files", f"--train={train}", f"--dev={dev}", "--vocab_size=400", "--clean_max_words=15",
        "--clean_duplicates",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def unbroken(flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Returns the files of an undisturbed run of t2t-datagen with one process, as {name: bytes}."""
    folder = tmp_path_factory.mktemp("unbroken")
    succeed("datagen", *flags, f"--data_dir={folder}", "--num_concurrent_processes=1")
    return contents(folder)


def in_session(session: int) -> list[str]:
    """Returns the command lines of the living processes in the session with this id (see setsid(2))."""
    commands = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, session_id = (folder / "stat").read_text().rpartition(") ")[2].split()[:4]
            if int(session_id) == session and state != "Z":
                commands.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:  # the process ended while this function read its files
            continue
    return commands


def shards(folder: Path) -> int:
    return len(list(folder.glob("text_files-train-*-of-00010.index")))


def test_kills_at_random_moments_change_nothing(flags: list[str], unbroken: dict[str, bytes], tmp_path: Path) -> None:
    draw = random.Random(7)
    flags = [*flags, f"--data_dir={tmp_path}", "--num_concurrent_processes=2"]
    for kill in range(5):
        before = shards(tmp_path)
        with open(tmp_path.parent / "errors", "wb") as errors:
            process = subprocess.Popen([*command("datagen"), *flags], stderr=errors, start_new_session=True)
        deadline = time.monotonic() + 60
        if kill == 0:  # kill t2t-datagen while it starts or learns the vocabulary
            time.sleep(draw.uniform(0.0, 0.3))
        else:  # kill t2t-datagen while it writes a shard
            while shards(tmp_path) == before and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.001)
            assert len(in_session(process.pid)) > 1, "no other process encodes"
            time.sleep(draw.uniform(0.0, 0.01))
        process.kill()
        assert process.wait() == -signal.SIGKILL, "it ended before it was killed"
        while in_session(process.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert in_session(process.pid) == []
        assert not (tmp_path / "text_files.json").exists()
    assert 4 <= shards(tmp_path) < SHARDS
    result = succeed("datagen", *flags)
    assert "resuming after" in result.stderr
    assert contents(tmp_path) == unbroken


def test_a_kill_as_a_file_is_about_to_appear(flags: list[str], unbroken: dict[str, bytes], tmp_path: Path) -> None:
    """If t2t-datagen is killed just before it renames a complete temporary file, the next run writes the same files."""
    code = """
import os, signal, sys
name, replace = sys.argv.pop(), os.replace
def replace_or_die(source, target):
    if os.path.basename(target) == name:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)
os.replace = replace_or_die
from t2t_repro.bin.t2t_datagen import run
run()
"""
    for name in (
        "vocab.text_files.400.model",
        ".text_files.unfinished",
        "text_files-train-00003-of-00010",
        "text_files-train-00003-of-00010.index",
        "text_files.json",
        "datagen.json",
    ):
        folder = tmp_path / name
        arguments = [sys.executable, "-c", code, *flags, f"--data_dir={folder}", name]
        assert subprocess.run(arguments, stderr=subprocess.DEVNULL).returncode == -signal.SIGKILL
        (left,) = set(contents(folder)) - unbroken.keys() - {".text_files.unfinished", LOCK}
        assert left.startswith(f".{name}.")
    for name in os.listdir(tmp_path):
        succeed("datagen", *flags, f"--data_dir={tmp_path / name}")
        assert contents(tmp_path / name) == unbroken
