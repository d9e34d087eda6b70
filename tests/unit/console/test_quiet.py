"""Tests that log messages of TensorFlow and SentencePiece are hidden, and nothing else is."""

import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from programs import run
from t2t_repro.console.quiet import quiet_tensorflow

LOG = """\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795341160.941453   12183 port.cc:153] oneDNN custom operations are on.
2026-11-22 10:00:00.123456: I tensorflow/core/platform/cpu_feature_guard.cc:210] This TensorFlow binary is optimized.
To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow.
normalizer.cc(51) LOG(INFO) precompiled_charsmap is empty. use identity normalization.
"""  # noqa: E501


def test_lines_of_the_log_are_hidden(capfd: pytest.CaptureFixture[str]) -> None:
    # There may be no temporary folder.
    with (
        mock.patch("tempfile.tempdir", "/nowhere"),
        quiet_tensorflow(),
    ):
        os.write(2, f"first\n{LOG}last\n".encode())
    assert capfd.readouterr().err == "first\nlast\n"


def test_all_lines_are_printed_after_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ImportError), quiet_tensorflow():
        os.write(2, LOG.encode())
        raise ImportError
    assert capfd.readouterr().err == LOG


def test_user_code_may_import_tensorflow(tmp_path: Path) -> None:
    (tmp_path / "mine_that_logs").mkdir()
    code = f"import os\nos.write(2, {LOG!r}.encode() + b'mine\\n')\n"
    (tmp_path / "mine_that_logs" / "__init__.py").write_text(code)
    result = run("bleu", f"--t2t_usr_dir={tmp_path / 'mine_that_logs'}", "--registry_help")
    assert (result.returncode, result.stderr) == (0, "mine\n")


SCRIPT = """
import gc, sys
from t2t_repro.bin import program
program.load_tensorflow()
assert "matplotlib" not in sys.modules and gc.isenabled()
assert gc.get_freeze_count() > 5 * len(gc.get_objects())
import matplotlib
"""


def test_tensorflow_is_loaded_without_matplotlib_and_messages_and_its_objects_are_frozen() -> None:
    environment = {
        name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"
    }
    process = [sys.executable, "-c", SCRIPT]
    result = subprocess.run(process, capture_output=True, text=True, check=False, env=environment)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
