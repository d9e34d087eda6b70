"""If t2t-datagen is killed and started again, it writes the same files as an undisturbed run, and
no other files.
"""

import signal
import subprocess
import sys
from pathlib import Path

from folders import contents
from programs import succeed, write_pairs
from t2t_repro.data.unfinished import LOCK
from t2t_repro.files.output_files import UNFINISHED

CODE = """
import os, signal
replace = os.replace
def replace_or_die(source, target):
    if str(target).endswith("text_files-train-00000-of-00001"):
        os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)
os.replace = replace_or_die
from t2t_repro.bin.t2t_datagen import run
run()
"""
"""Runs t2t-datagen, but kills it while its processes encode."""


def test_a_kill_changes_nothing(tmp_path: Path) -> None:
    train = write_pairs(tmp_path, "train", range(3000))
    dev = write_pairs(tmp_path, "dev", range(100))
    flags = ["--problem=text_files", f"--train={train}", f"--dev={dev}", "--vocab_size=400"]
    succeed(
        "datagen", *flags, f"--data_dir={tmp_path / 'unbroken'}", "--num_concurrent_processes=1"
    )
    arguments = [*flags, f"--data_dir={tmp_path / 'data'}", "--num_concurrent_processes=2"]
    command = [sys.executable, "-c", CODE, *arguments]
    # The pipe ends when all processes have ended, also those that encode.
    killed = subprocess.run(command, stderr=subprocess.PIPE, timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert {path.name for path in (tmp_path / "data").iterdir()} == {UNFINISHED, LOCK}
    succeed("datagen", *flags, f"--data_dir={tmp_path / 'data'}")
    assert contents(tmp_path / "data") == contents(tmp_path / "unbroken")
