"""t2t-datagen that is killed and started again writes what an unbroken run writes, and leaves nothing else."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from programs import run_process as run
from t2t_repro.textfile import read_lines
from toys import contents

MULTI30K = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "multi30k"
PAIRS, SHARDS = 10_000, 10


@pytest.fixture(scope="module")
def flags(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """t2t-datagen's flags, but for --data_dir, for some thousand real pairs."""
    if not MULTI30K.exists():
        pytest.skip("../shared/data/multi30k is not there")
    folder = tmp_path_factory.mktemp("text")
    for split, count in (("train", PAIRS), ("val", 300)):
        for language in ("en", "de"):
            texts = list(read_lines(str(MULTI30K / f"{split}.{language}.gz")))[:count]
            (folder / f"{split}.{language}").write_text("".join(text + "\n" for text in texts), "utf-8")
    return [
        "--problem=text_files",
        f"--train={folder}/train.en,{folder}/train.de",
        f"--dev={folder}/val.en,{folder}/val.de",
        "--vocab_size=600",
        "--clean_max_words=25",
        "--clean_duplicates",
    ]


@pytest.fixture(scope="module")
def unbroken(flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Every file of a run in one process that nobody killed."""
    folder = tmp_path_factory.mktemp("unbroken")
    result = run("datagen", *flags, f"--data_dir={folder}", "--num_concurrent_processes=1")
    assert result.returncode == 0, result.stderr
    return contents(folder)


def in_session(session: int) -> list[str]:
    """The processes of a session, by their command lines."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, its_session = (folder / "stat").read_text().rpartition(") ")[2].split()[:4]
            if int(its_session) == session and state != "Z":
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:  # it has just ended
            continue
    return found


def shards(folder: Path) -> int:
    return len(list(folder.glob("text_files-train-*-of-00010.index")))


def test_kills_at_random_moments(flags: list[str], unbroken: dict[str, bytes], tmp_path: Path) -> None:
    draw = random.Random(7)
    code = "from t2t_repro.bin.t2t_datagen import run; run()"
    command = [sys.executable, "-c", code, *flags, f"--data_dir={tmp_path}", "--num_concurrent_processes=2"]
    for kill in range(5):
        before = shards(tmp_path)
        with open(tmp_path.parent / "errors", "wb") as errors:
            process = subprocess.Popen(command, stderr=errors, start_new_session=True)
        deadline = time.monotonic() + 60
        if kill == 0:  # in its first moments, or while the vocabulary is learned
            time.sleep(draw.uniform(0.0, 0.3))
        else:  # while it writes a shard
            while shards(tmp_path) == before and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.001)
            assert len(in_session(process.pid)) > 1, "it tokenises in no other process"
            time.sleep(draw.uniform(0.0, 0.01))
        process.kill()
        assert process.wait() == -signal.SIGKILL, "it was done before it was killed"
        while in_session(process.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert in_session(process.pid) == []
        assert not (tmp_path / "text_files.json").exists()
    assert 4 <= shards(tmp_path) < SHARDS
    result = run("datagen", *flags, f"--data_dir={tmp_path}", "--num_concurrent_processes=2")
    assert result.returncode == 0, result.stderr
    assert "resuming after" in result.stderr
    assert contents(tmp_path) == unbroken


def test_a_kill_as_a_file_is_about_to_appear(flags: list[str], unbroken: dict[str, bytes], tmp_path: Path) -> None:
    """Then the file that was being written lies there whole, under its temporary name."""
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
        "vocab.text_files.600.model",
        ".text_files.unfinished",
        "text_files-train-00003-of-00010",
        "text_files-train-00003-of-00010.index",
        "text_files.json",
        "datagen.json",
    ):
        folder = tmp_path / name
        command = [sys.executable, "-c", code, *flags, f"--data_dir={folder}", name]
        assert subprocess.run(command, stderr=subprocess.DEVNULL).returncode == -signal.SIGKILL
        left = set(contents(folder)) - unbroken.keys() - {".text_files.unfinished"}
        assert [each.startswith(f".{name}.") for each in left] == [True], left
    for name in os.listdir(tmp_path):
        result = run("datagen", *flags, f"--data_dir={tmp_path / name}")
        assert result.returncode == 0, result.stderr
        assert contents(tmp_path / name) == unbroken
