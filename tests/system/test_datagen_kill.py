"""If t2t-datagen is killed and started again, it writes the same files as an undisturbed run, and no other files."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from folders import contents
from programs import succeed, write_pairs
from t2t_repro.data.unfinished import LOCK
from t2t_repro.files.output_files import UNFINISHED

CODE = """
import os, signal, sys
name, replace = sys.argv.pop(), os.replace
def replace_or_die(source, target):
    if str(target).endswith(name):
        os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)
os.replace = replace_or_die
from t2t_repro.bin.t2t_datagen import run
run()
"""


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


def test_a_kill_changes_nothing(tmp_path: Path) -> None:
    train, dev = write_pairs(tmp_path, "train", range(3000)), write_pairs(tmp_path, "dev", range(100))
    flags = ["--problem=text_files", f"--train={train}", f"--dev={dev}", "--vocab_size=400"]
    succeed("datagen", *flags, f"--data_dir={tmp_path / 'unbroken'}", "--num_concurrent_processes=1")
    unbroken = contents(tmp_path / "unbroken")
    data_dir = tmp_path / "data"
    # The kill comes while the processes encode, while files are moved, and before the last one is moved.
    for name in (
        f"{UNFINISHED}/text_files-train-00003-of-00010",
        "data/text_files-train-00003-of-00010",
        "data/text_files.json",
    ):
        arguments = [*flags, f"--data_dir={data_dir}", "--num_concurrent_processes=2"]
        process = subprocess.Popen(
            [sys.executable, "-c", CODE, *arguments, name], stderr=subprocess.DEVNULL, start_new_session=True
        )
        assert process.wait() == -signal.SIGKILL
        deadline = time.monotonic() + 60
        while in_session(process.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert in_session(process.pid) == []
        left = {path.name for path in data_dir.iterdir()} - {UNFINISHED, LOCK}
        assert left <= unbroken.keys() - {"text_files.json"}
        assert bool(left) == (UNFINISHED not in name)
    succeed("datagen", *flags, f"--data_dir={data_dir}")
    assert contents(data_dir) == unbroken
