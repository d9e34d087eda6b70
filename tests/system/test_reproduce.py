"""t2t-reproduce as a user runs it: stopped in training, killed while it decodes, finished, and run once more."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import sacrebleu

from programs import run_process as run
from t2t_repro.metrics.bleu import paper_bleu
from t2t_repro.textfile import read_lines

SLIM = "num_hidden_layers=1,hidden_size=32,num_heads=2,filter_size=64,batch_size=300"
PUBLISHED = """
from itertools import islice
from t2t_repro import registry
from t2t_repro.problem import Problem
from t2t_repro.problems.numbers import NumbersEnde

@registry.register_problem
class Published(NumbersEnde):
    # The first of its test sets is the text of the dev split.
    test_sets, dev_set = ("first", "second/part"), "first"
    scores = Problem.scores  # BLEU, for results.json

    def test_set(self, name, tmp_dir):
        return islice(self.generate("dev", tmp_dir), None if name == "first" else 100)
"""


def stop(flags: list[str], errors: Path, reached: Callable[[], bool], number: int) -> int:
    """Starts t2t-reproduce and sends it a signal as soon as it has reached a stage; its exit code."""
    command = [sys.executable, "-c", "from t2t_repro.bin.t2t_reproduce import run; run()", *flags]
    with open(errors, "wb") as file:
        process = subprocess.Popen(command, stderr=file)
    deadline = time.monotonic() + 120
    while not reached() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    code = process.wait()
    assert reached(), errors.read_text()
    return code


def times(*folders: Path) -> dict[str, int]:
    """Returns when each file was last written, except the files that every run writes."""
    written = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    rewritten = ("report.md", "results.json", "hparams.json", "problem.json", "metrics.jsonl", "checkpoint")
    return {str(path): path.stat().st_mtime_ns for path in written if path.name not in rewritten}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_row_stopped_twice_and_finished(tmp_path: Path) -> None:
    data, model, errors = tmp_path / "D", tmp_path / "M", tmp_path / "errors"
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "__init__.py").write_text(PUBLISHED)
    flags = [
        "--problem=published", "--row=base", f"--hparams={SLIM}", "--train_size=1000", "--vocab_size=400",
        "--decode_hparams=batch_size=100", "--train_steps=30", "--local_eval_frequency=10", f"--data_dir={data}",
        f"--output_dir={model}", f"--t2t_usr_dir={tmp_path / 'own'}", "--eval_decode_lines=0",
    ]  # fmt: skip
    planned = run("reproduce", *flags, "--dry_run")
    assert (planned.returncode, "run t2t-datagen" in planned.stderr) == (2, True)
    assert stop(flags, errors, lambda: (model / "model.ckpt-10.index").exists(), signal.SIGTERM) == 130
    assert "saved after step " in errors.read_text()
    assert not (model / "model.ckpt-30.index").exists()

    def begun() -> list[Path]:
        return list((model / "decoded").glob("second_part-30-*.txt.unfinished"))

    code = stop(flags, errors, lambda: any(path.read_bytes().count(b"\n") > 1 for path in begun()), signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert "resuming after step " in errors.read_text()
    assert not (model / "results.json").exists()
    done = {path: time for path, time in times(data, model).items() if path not in map(str, begun())}
    (first,) = (Path(path) for path in done if "/decoded/" in path)
    assert first.name.startswith("first-30-last-")

    result = run("reproduce", *flags)
    assert result.returncode == 0, result.stderr
    assert "has taken 30 steps already" in result.stderr
    assert times(data, model).items() >= done.items()
    assert not begun()

    metrics = [json.loads(line) for line in (model / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert [line["step"] for line in metrics if "dev_loss" in line] == [10, 20, 30]
    sources, references = (list(read_lines(str(data / f"published.first.{side}"))) for side in ("inputs", "targets"))
    outputs = list(read_lines(str(first)))
    (second,) = (model / "decoded").glob("second_part-30-*.txt")
    averaged = list(read_lines(str(second)))
    assert len(outputs) == len(references) == len(sources) == 5 * len(averaged) == 500
    found = json.loads((model / "results.json").read_text("utf-8"))
    assert found["steps"] == 30
    assert found["dev_bleu"] == paper_bleu(outputs, references, "en").score
    assert found["bleu"] == {"second/part": paper_bleu(averaged, references[:100], "en").score}
    assert found["dev_perplexity"] == metrics[-1]["dev_perplexity"]
    assert found["train_seconds"] == metrics[-2]["seconds"] > metrics[0]["seconds"] > 0
    assert found["hardware"] and found["gpu_count"]
    report = (model / "report.md").read_text("utf-8")
    chrf = sacrebleu.corpus_chrf(outputs, [references]).score
    assert f"| chrF, first, last checkpoint | {chrf:.2f} | nrefs:1" in report
    assert chrf > 1 and "Averaged checkpoints: 3." in report and report.startswith("# transformer_base on published\n")

    text = "".join(f"{line}\n" for line in sources[:20])
    for checkpoint, expected in (("", averaged), (f"--checkpoint_path={model}/model.ckpt-30", outputs)):
        as_decoder = run("decoder", f"--output_dir={model}", flags[-2], *filter(None, [checkpoint]), input=text)
        assert as_decoder.stdout.split("\n")[:-1] == expected[:20]

    once, before = times(data, model), contents(tmp_path)
    again = run("reproduce", *flags)
    assert again.returncode == 0, again.stderr
    assert times(data, model) == once
    assert contents(tmp_path) == before
    assert not any(word in again.stderr for word in ("step 30:", "DecodeHParams", "averaging", "learning"))

    listed = run("paper", "--table=3", f"--output_dirs={model}", flags[-2])
    assert listed.returncode == 0, listed.stderr
    _, _, other_models = listed.stdout.partition("Model folders that fit no row above")
    (line,) = (line for line in other_models.splitlines() if "published" in line)
    assert f"{model}  published" in line and f"{found['dev_perplexity']:.2f}" in line
