"""What a training tells: metrics, pictures, scores of real translations; and that it ends when it should."""

from __future__ import annotations

import fcntl
import json
import math
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from programs import MINUTE, Road, refused
from programs import run_process as run
from t2t_repro.data.records import Records, find_shards

DEV_LINES = 50


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]


def flags(road: Road, folder: Path, rate: str = "2.0") -> list[str]:
    hparams = MINUTE.replace("learning_rate_constant=2.0", f"learning_rate_constant={rate}")
    kept = [flag for flag in road.flags if not flag.startswith(("--output_dir", "--hparams="))]
    return [*kept, f"--output_dir={folder}", f"--hparams={hparams}"]


@pytest.fixture(scope="module")
def watched(road: Road, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A model folder, and what was said as it was made."""
    folder = tmp_path_factory.mktemp("watched") / "model"
    done = run("trainer", *flags(road, folder), "--train_steps=30", "--log_step_count_steps=5",
               f"--eval_decode_lines={DEV_LINES}")  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder, done.stderr


def test_metrics_hold_every_figure(watched: tuple[Path, str]) -> None:
    lines = metrics(watched[0])
    trained, evaluated = ([line for line in lines if name in line] for name in ("train_loss", "dev_loss"))
    assert len(trained) + len(evaluated) == len(lines)
    assert [line["step"] for line in trained] == [5, 10, 15, 20, 25, 30]
    assert [line["step"] for line in evaluated] == [10, 20, 30]
    for line in trained:
        # linear_warmup of MINUTE: 2 * s / 100 * 100^-0.5 * 32^-0.5, after s steps.
        rate = 2.0 * (line["step"] - 1) / 100 * 100**-0.5 * 32**-0.5
        assert line["learning_rate"] == pytest.approx(rate, rel=1e-5)
        assert line["gradient_norm"] > 0 and 0 <= line["padding"] < 0.5
        assert line["source_tokens_per_second"] > 0 and line["target_tokens_per_second"] > 0
    seconds = [line["seconds"] for line in trained]
    assert seconds == sorted(seconds) and seconds[0] > 0
    for line in evaluated:
        assert line["dev_perplexity"] == pytest.approx(math.exp(line["dev_loss"]))
        assert 0 <= line["dev_accuracy"] <= 1
        assert f"|lines:{DEV_LINES}" in line["signature"] and "tok:13a" in line["signature"]
        assert [len(translation) for translation in line["dev_translations"]] == [3] * 5


def test_bleu_is_that_of_the_decoders_translations(road: Road, watched: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = watched
    output = tmp_path / "out.de"
    decoded = run("decoder", f"--output_dir={folder}", f"--checkpoint_path={folder}/model.ckpt-30",
                  f"--decode_from_file={road.text}/dev.en", f"--decode_to_file={output}")  # fmt: skip
    assert decoded.returncode == 0, decoded.stderr
    scored = run("bleu", f"--translation={output}", f"--reference={road.text}/dev.de")
    assert f"{metrics(folder)[-1]['dev_bleu']:.2f}" == scored.stdout.split()[0]


def test_tensorboard_shows_the_same_and_translations_and_attention(watched: tuple[Path, str]) -> None:
    folder, _ = watched
    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"tensors": 0, "scalars": 0})
    events.Reload()
    names = {name for line in metrics(folder) for name, value in line.items() if isinstance(value, float)} - {"seconds"}
    assert set(events.Tags()["scalars"]) == names
    for name in names:
        expected = [(line["step"], line[name]) for line in metrics(folder) if name in line]
        found = [(event.step, event.value) for event in events.Scalars(name)]
        assert [step for step, _ in found] == [step for step, _ in expected]
        assert [value for _, value in found] == pytest.approx([value for _, value in expected], rel=1e-6)
    [attention] = events.Tags()["images"]
    assert [image.step for image in events.Images(attention)] == [10, 20, 30]
    assert events.Images(attention)[0].encoded_image_string.startswith(b"\x89PNG")
    [translations] = events.Tags()["tensors"]
    text = events.Tensors(translations)[-1].tensor_proto.string_val[0].decode()
    assert text.startswith("| source | reference | output |\n| --- ") and len(text.split("\n")) == 7


def test_the_best_is_kept_and_the_command_that_is_said_at_the_end_works(
    road: Road, watched: tuple[Path, str], tmp_path: Path
) -> None:
    folder, said = watched
    losses = {line["step"]: line["dev_loss"] for line in metrics(folder) if "dev_loss" in line}
    best = min(losses, key=lambda step: losses[step])
    [index] = (folder / "best").glob("*.index")
    assert index.name == f"model.ckpt-{best}.index"
    assert f"--checkpoint_path={index.with_suffix('')}" in said
    [command] = re.findall(r"average and decode:\s+(.*)", said)
    average, decode = (shlex.split(part) for part in command.split("&&"))
    assert (average[0], decode[0]) == ("t2t-avg-checkpoints", "t2t-decoder")
    files = {"INPUT": f"{road.text}/dev.en", "OUTPUT": str(tmp_path / "out")}
    decode = [re.sub("INPUT|OUTPUT", lambda name: files[name[0]], word) for word in decode]
    for program, *arguments in (average, decode):
        done = run(program.removeprefix("t2t-"), *arguments)
        assert done.returncode == 0, done.stderr
    assert len((tmp_path / "out").read_text().splitlines()) == DEV_LINES


def test_training_ends_where_the_dev_loss_no_longer_falls(road: Road, tmp_path: Path) -> None:
    # At a rate of nothing no evaluation after the first is better.
    arguments = [*flags(road, tmp_path / "m", "1e-30"), "--eval_decode_lines=0"]
    arguments += ["--early_stopping_patience=2", "--local_eval_frequency=3", "--train_steps=100"]
    arguments += ["--save_checkpoints_secs=600"]
    for _ in range(2):  # and does not go on when it is asked again
        done = run("trainer", *arguments)
        assert done.returncode == 0, done.stderr
        assert "no lower dev loss in 2 evaluations: ended after step 9" in done.stderr
        assert [line["step"] for line in metrics(tmp_path / "m") if "dev_loss" in line] == [3, 6, 9]
        assert [path.name for path in (tmp_path / "m/best").glob("*.index")] == ["model.ckpt-3.index"]
        assert [path.name for path in (tmp_path / "m").glob("*.index")] == ["model.ckpt-9.index"]


def test_a_loss_that_is_not_finite_stops_the_run_and_names_its_examples(road: Road, tmp_path: Path) -> None:
    arguments = [*flags(road, tmp_path / "m", "1e38"), "--eval_decode_lines=0"]
    done = run("trainer", *arguments, "--local_eval_frequency=1", "--train_steps=20")
    refused(done, "which is not finite", "the last good checkpoint is", "not_finite-")
    step = int(re.findall(r"step (\d+): loss", done.stderr)[-1])
    good = re.findall(r"the last good checkpoint is (\S+);", done.stderr)[0]
    # The weights with which it was computed are in model.ckpt-(step - 1), so they are not the good ones.
    assert good == "none" if step <= 2 else good == str(tmp_path / f"m/model.ckpt-{step - 2}")
    records = Records(find_shards(road.data, "text_files", "train"))
    rows = [line.split("\t") for line in (tmp_path / f"m/not_finite-{step}.tsv").read_text().splitlines()]
    places = {(str(path), str(record)) for path, record in map(records.locate, range(len(records)))}
    assert {tuple(row) for row in rows} <= places and len({tuple(row) for row in rows}) == len(rows)
    tokens = sum(len(records[number][1]) for number in range(len(records))
                 if tuple(map(str, records.locate(number))) in {tuple(row) for row in rows})  # fmt: skip
    assert 200 < tokens < 800  # batch_size=400
    said = re.findall(r"its (\d+) examples begin with record (\d+) of (\S+), and", done.stderr)[0]
    assert said == (str(len(rows)), rows[0][1], rows[0][0])


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_in_16_bits_the_loss_is_nearly_the_same(
    road: Road, watched: tuple[Path, str], tmp_path: Path, precision: str
) -> None:
    done = run("trainer", *flags(road, tmp_path / "m"), "--train_steps=10", f"--precision={precision}",
               "--eval_decode_lines=2", "--log_step_count_steps=5")  # fmt: skip
    assert done.returncode == 0, done.stderr
    ours, theirs = metrics(tmp_path / "m"), metrics(watched[0])
    for name in ("train_loss", "dev_loss"):
        whole = {line["step"]: line[name] for line in theirs if name in line}
        found = {line["step"]: line[name] for line in ours if name in line}
        assert found == {step: pytest.approx(whole[step], rel=0.01) for step in found} and found
    assert ("loss_scale" in ours[0]) == (precision == "mixed_float16")
    other = run("trainer", *flags(road, tmp_path / "m"), "--train_steps=20")
    refused(other, f"--precision={precision}, not float32", "--warm_start_from")


def test_a_dry_run_says_what_would_be_and_writes_nothing(road: Road, watched: tuple[Path, str], tmp_path: Path) -> None:
    done = run("trainer", *flags(road, tmp_path / "m"), "--train_steps=30", "--dry_run")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "m").exists()
    parameters, steps = re.findall(r"([\d,]+) steps an epoch; transformer: ([\d,]+) parameters", watched[1])[0][::-1]
    assert f"{parameters} parameters" in done.stdout and f"{steps} an epoch" in done.stdout
    for word in ("padding", "target tokens a step", "micro-batches", "weights", "activations", "together"):
        assert word in done.stdout


def test_a_terminal_shows_a_bar(road: Road, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))  # rows, columns
    command = [sys.executable, "-c", "from t2t_repro.bin.t2t_trainer import run; run()", *flags(road, tmp_path / "m")]
    command += ["--train_steps=25", "--eval_decode_lines=0"]
    shown = b""
    with subprocess.Popen(command, stderr=theirs, stdout=subprocess.DEVNULL) as process:
        os.close(theirs)
        while True:
            try:
                found = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            if not found:
                break
            shown += found
    os.close(ours)
    assert process.returncode == 0
    last = shown.decode().split("\r")
    bars = [line for line in last if "training:" in line and "target tokens/s" in line]
    assert bars and re.search(r"\d+/25 .*loss \d+\.\d+, rate \d\.\de-\d\d, [\d,]+ target tokens/s", bars[-1]), bars[-3:]
