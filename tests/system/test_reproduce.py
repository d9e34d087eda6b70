"""t2t-reproduce as a user runs it: killed in training, killed while it decodes, finished, and run once more."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import sacrebleu

from programs import run
from t2t_repro.metrics.bleu import paper_bleu
from t2t_repro.textfile import read_lines

SLIM = "num_hidden_layers=1,hidden_size=32,num_heads=2,filter_size=64,batch_size=300"


def kill(flags: list[str], errors: Path, reached: Callable[[], bool]) -> None:
    """Starts t2t-reproduce and kills it as soon as it has reached a stage."""
    command = [sys.executable, "-c", "from t2t_repro.bin.t2t_reproduce import run; run()", *flags]
    with open(errors, "wb") as file:
        process = subprocess.Popen(command, stderr=file)
    deadline = time.monotonic() + 120
    while not reached() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    assert process.wait() < 0, errors.read_text()
    assert reached(), errors.read_text()


def times(*folders: Path) -> dict[str, int]:
    """When each file was last written, but for those that say how things stand."""
    written = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    of_each_run = ("report.md", "results.json", "hparams.json", "problem.json", "metrics.jsonl")
    return {str(path): path.stat().st_mtime_ns for path in written if path.name not in of_each_run}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_row_killed_twice_and_finished(tmp_path: Path) -> None:
    data, model, errors = tmp_path / "D", tmp_path / "M", tmp_path / "errors"
    flags = [
        "--problem=numbers_ende", "--hparams_set=transformer_tiny", f"--hparams={SLIM}", "--train_size=1000",
        "--vocab_size=400", "--train_steps=30", "--local_eval_frequency=10", f"--data_dir={data}",
        f"--output_dir={model}",
    ]  # fmt: skip
    kill(flags, errors, lambda: (model / "model.ckpt-10.index").exists())
    assert not (model / "model.ckpt-30.index").exists()
    begun = model / "decoded" / "dev-30.txt.unfinished"
    kill(flags, errors, lambda: begun.exists() and begun.read_bytes().count(b"\n") > 1)
    assert "going on after step " in errors.read_text()
    assert not (model / "results.json").exists()
    trained = {path: time for path, time in times(data, model).items() if path != str(begun)}
    assert not any("/decoded/" in path for path in trained)

    result = run("reproduce", *flags)
    assert result.returncode == 0, result.stderr
    assert "has taken 30 steps already" in result.stderr
    assert times(data, model).items() >= trained.items()
    assert not begun.exists()

    metrics = [json.loads(line) for line in (model / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert [line["step"] for line in metrics] == [10, 10, 20, 20, 30, 30]
    sources, references = (list(read_lines(str(data / f"numbers_ende.dev.{side}"))) for side in ("inputs", "targets"))
    outputs = list(read_lines(str(model / "decoded" / "dev-30.txt")))
    assert len(outputs) == len(references) == len(sources) == 500
    found = json.loads((model / "results.json").read_text("utf-8"))
    assert found["steps"] == 30
    assert (found["dev_bleu"], found["bleu"]) == (paper_bleu(outputs, references, "en").score, {})
    assert found["dev_perplexity"] == metrics[-1]["dev_perplexity"]
    assert found["train_seconds"] == metrics[-2]["seconds"] > metrics[0]["seconds"] > 0
    assert found["hardware"] and found["gpu_count"]
    report = (model / "report.md").read_text("utf-8")
    chrf = sacrebleu.corpus_chrf(outputs, [references]).score
    assert f"| chrF, dev | {chrf:.2f} | nrefs:1" in report
    assert chrf > 1 and "Averaged checkpoints: 3." in report

    as_decoder = run("decoder", f"--output_dir={model}", input="".join(f"{line}\n" for line in sources[:20]))
    assert as_decoder.stdout.split("\n")[:-1] == outputs[:20]

    once, before = times(data, model), contents(tmp_path)
    again = run("reproduce", *flags)
    assert again.returncode == 0, again.stderr
    assert times(data, model) == once
    assert contents(tmp_path) == before
    assert not any(word in again.stderr for word in ("step 30:", "DecodeHParams", "averaging", "learning"))

    listed = run("paper", "--table=3", f"--output_dirs={model}")
    assert listed.returncode == 0, listed.stderr
    _, _, of_no_row = listed.stdout.partition("Model folders of no row above")
    (line,) = (line for line in of_no_row.splitlines() if "numbers_ende" in line)
    assert f"{model}  numbers_ende" in line and f"{found['dev_perplexity']:.2f}" in line
