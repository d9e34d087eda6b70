"""After a stop in training and a kill in decoding, t2t-reproduce resumes and repeats no finished
work.

The model is Lookup, which trains and decodes faster than a Transformer.
"""

import json
import signal
from pathlib import Path

from processes import STOP_REQUESTED, code_that_waits, start_program
from programs import succeed
from t2t_repro.files.textfile import read_lines

SLIM = "num_hidden_layers=1,hidden_size=32,num_heads=2,filter_size=64,batch_size=300"
PUBLISHED = """
from itertools import islice
from lookup_model import Lookup
from t2t_repro import registry
from t2t_repro.problem import Problem
from t2t_repro.problems.numbers import NumbersEnde

@registry.register_problem
class Published(NumbersEnde):
    test_sets, dev_set = ("first", "second/part"), "first"
    scores = Problem.scores  # BLEU, for results.json

    def test_set(self, name, tmp_dir):
        return islice(self.generate("dev", tmp_dir), 60 if name == "first" else 20)
"""


def stop(flags: list[str], before: str, number: signal.Signals) -> tuple[int, str]:
    """Starts t2t-reproduce and sends it signal `number` when it waits in the code `before`, see
    `code_that_waits`.

    Returns the exit code and the messages of t2t-reproduce.
    """
    process = start_program("reproduce", *flags, before=before)
    process.wait_for("waits\n")
    process.send_signal(number)
    return process.wait(120), process.errors


def times(*folders: Path) -> dict[str, int]:
    """Returns {path: time of the last change} of all files in these folders, except files that
    every run rewrites.
    """
    written = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    rewritten = (
        ".lock",
        "report.md",
        "results.json",
        "hparams.json",
        "problem.json",
        "metrics.jsonl",
        "checkpoint",
    )
    return {str(path): path.stat().st_mtime_ns for path in written if path.name not in rewritten}


def test_a_row_is_reproduced_after_a_stop_and_a_kill(tmp_path: Path) -> None:
    data = tmp_path / "D"
    model = tmp_path / "M"
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "__init__.py").write_text(PUBLISHED)
    flags = [
        "--problem=published",
        "--row=base",
        f"--hparams={SLIM}",
        "--train_size=1000",
        "--vocab_size=400",
        "--decode_hparams=batch_size=100",
        "--train_steps=30",
        "--local_eval_frequency=10",
        f"--data_dir={data}",
        f"--output_dir={model}",
        "--model=lookup",
        f"--t2t_usr_dir={tmp_path / 'own'}",
        "--eval_decode_lines=0",
    ]
    twelfth_step = code_that_waits(
        "t2t_repro.training.step:TrainStep", "__call__", call=12, until=STOP_REQUESTED
    )
    code, messages = stop(flags, twelfth_step, signal.SIGTERM)
    assert code == 130
    assert "saved after step " in messages
    assert (model / "model.ckpt-10.index").exists() and not (model / "model.ckpt-30.index").exists()

    def unfinished() -> list[Path]:
        return list((model / "decoded").glob("second_part-30-*.txt.unfinished"))

    third_line_of_second = code_that_waits("t2t_repro.decoding.journal:Journal", "add", call=60 + 3)
    code, messages = stop(flags, third_line_of_second, signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert [path.read_bytes().count(b"\n") for path in unfinished()] == [1 + 2]
    assert "resuming after step " in messages
    assert not (model / "results.json").exists()
    done = {
        path: time
        for path, time in times(data, model).items()
        if path not in map(str, unfinished())
    }
    (dev_outputs,) = (Path(path) for path in done if "/decoded/" in path)
    assert dev_outputs.name.startswith("first-30-last-")

    result = succeed("reproduce", *flags)
    assert "has taken step 30 already" in result.stderr
    assert times(data, model).items() >= done.items()
    assert not unfinished()

    metrics = [
        json.loads(line) for line in (model / "metrics.jsonl").read_text("utf-8").splitlines()
    ]
    assert [line["step"] for line in metrics if "dev_loss" in line] == [10, 20, 30]
    (second,) = (model / "decoded").glob("second_part-30-*.txt")
    assert [len(list(read_lines(str(path)))) for path in (dev_outputs, second)] == [60, 20]
    assert json.loads((model / "results.json").read_text("utf-8"))["steps"] == 30
    assert (model / "report.md").read_text("utf-8").startswith("# transformer_base on published\n")
