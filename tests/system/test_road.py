"""The main road: raw text to a served translation, through the programs."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import tensorflow as tf

from programs import MINUTE, Road
from programs import run_process as run

HELD_OUT = [
    "one thousand, nine hundred and fifty-one",
    "",
    "one thousand and two",
    "   ",
    "café   →  naïve\u2028 \u0085x",
]


def test_text_to_translation_needs_the_model_folder_alone(road: Road, tmp_path: Path) -> None:
    model = tmp_path / "moved"
    shutil.copytree(road.model, model)
    averaging = run("avg-checkpoints", f"--output_dir={model}", "--num_last_checkpoints=3", cwd=tmp_path)
    assert averaging.returncode == 0, averaging.stderr

    source = "\n".join(HELD_OUT) + "\n"
    (tmp_path / "x.en").write_text(source, encoding="utf-8")
    to_file = run(
        "decoder", f"--output_dir={model}", "--decode_from_file=x.en", "--decode_to_file=x.de",
        "--decode_hparams=extra_length=5", cwd=tmp_path,
    )  # fmt: skip
    assert to_file.returncode == 0, to_file.stderr
    assert to_file.stdout == ""
    assert "averaged" in to_file.stderr
    lines = (tmp_path / "x.de").read_text(encoding="utf-8").split("\n")
    assert len(lines) == len(HELD_OUT) + 1
    assert lines[1] == lines[3] == lines[5] == ""
    assert lines[0] and lines[2] and lines[4]

    piped = run("decoder", f"--output_dir={model}", "--decode_hparams=extra_length=5", input=source)
    assert piped.stdout == "\n".join(lines)

    exported = run("exporter", f"--output_dir={model}", "--decode_hparams=extra_length=5")
    assert exported.returncode == 0, exported.stderr
    served = """
import json, sys
import tensorflow as tf, tensorflow_text
translate = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
print(json.dumps([text.decode() for text in translate(inputs=tf.constant(json.loads(sys.argv[2])))["outputs"].numpy()]))
assert not any(name.startswith(("t2t_repro", "keras")) and "t2t" in name for name in sys.modules)
"""
    command = [sys.executable, "-c", served, str(model / "export" / "1"), json.dumps(HELD_OUT)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert json.loads(answer.stdout) == lines[:-1]


def test_the_trainer_reports_what_it_does(road: Road) -> None:
    hparams = json.loads((road.model / "hparams.json").read_text())
    assert (hparams["hidden_size"], hparams["train_steps"]) == (32, 40)
    assert sorted(path.name for path in road.model.glob("*.index")) == [
        f"model.ckpt-{n}.index" for n in (10, 20, 30, 40)
    ]


def test_the_same_command_goes_on_as_if_it_had_not_stopped(road: Road, tmp_path: Path) -> None:
    flags = [*road.flags[:-2], f"--output_dir={tmp_path / 'm'}", "--local_eval_frequency=10"]
    process = subprocess.Popen(
        [sys.executable, "-c", "from t2t_repro.bin.t2t_trainer import run; run()", *flags, "--train_steps=40"],
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "m" / "model.ckpt-10.index").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    result = run("trainer", *flags, "--train_steps=40")
    assert result.returncode == 0, result.stderr
    assert re.search(r"going on after step [123]0\n", result.stderr), result.stderr

    unbroken, resumed = (tf.train.load_checkpoint(f"{folder}/model.ckpt-40") for folder in (road.model, tmp_path / "m"))
    for name in unbroken.get_variable_to_shape_map():
        if "weights/" in name or "optimizer/" in name:
            assert (unbroken.get_tensor(name) == resumed.get_tensor(name)).all(), name

    again = run("trainer", *flags, "--train_steps=40")
    assert again.returncode == 0
    assert "higher --train_steps" in again.stderr


def test_a_compressed_corpus_gives_the_same_data(road: Road, tmp_path: Path) -> None:
    paths = {}
    for split in ("train", "dev"):
        names = []
        for language in ("en", "de"):
            target = tmp_path / f"{split}.{language}.gz"
            target.write_bytes(gzip.compress((road.text / f"{split}.{language}").read_bytes()))
            names.append(str(target))
        paths[split] = ",".join(names)
    result = run(
        "datagen", "--problem=text_files", f"--train={paths['train']}", f"--dev={paths['dev']}", "--vocab_size=340",
        f"--data_dir={tmp_path / 'data'}",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    for path in road.data.iterdir():
        if path.suffix != ".json":
            assert path.read_bytes() == (tmp_path / "data" / path.name).read_bytes(), path.name


def test_the_defaults_suffice_where_no_download_is_needed(tmp_path: Path) -> None:
    result = run(
        "trainer", "--problem=numbers_ende_rev", "--hparams_set=transformer_tiny", f"--hparams={MINUTE}",
        "--train_steps=2", "--train_size=300", "--vocab_size=340", cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    model = tmp_path / "t2t_train" / "numbers_ende_rev-transformer_tiny"
    assert (model / "model.ckpt-2.index").exists()
    assert (tmp_path / "t2t_data" / "numbers_ende.json").exists()
    assert json.loads((model / "problem.json").read_text())["problem"] == "numbers_ende_rev"


def test_a_model_learns_to_copy(tmp_path: Path) -> None:
    """As Sockeye's system tests demand: on a task without noise the model must be all but perfect."""
    words = ["ab", "cd", "ef", "gh", "ij", "kl", "mn", "op"]

    def lines(count: int, salt: int) -> str:
        texts = (
            " ".join(
                words[(number * 7919 + salt + place * place * 31 + number // 13 * place) % 8]
                for place in range(2 + number % 5)
            )
            for number in range(count)
        )
        return "".join(f"{text}\n" for text in texts)

    for name, count, salt in (("train", 4000, 1), ("dev", 200, 2)):
        for language in ("a", "b"):
            (tmp_path / f"{name}.{language}").write_text(lines(count, salt))
    train, dev = (f"{tmp_path / name}.a,{tmp_path / name}.b" for name in ("train", "dev"))
    steps = (
        ("datagen", "--problem=text_files", f"--train={train}", f"--dev={dev}", "--vocab_size=300", "--data_dir=data"),
        ("trainer", "--problem=text_files", "--data_dir=data", "--output_dir=m", "--hparams_set=transformer_tiny",
         "--hparams=hidden_size=64,filter_size=128,batch_size=1000,learning_rate_warmup_steps=150",
         "--train_steps=450", "--local_eval_frequency=450", "--intra_op_parallelism_threads=1"),
        ("decoder", "--output_dir=m", "--decode_from_file=dev.a", "--decode_to_file=out.b"),
    )  # fmt: skip
    for program, *arguments in steps:
        result = run(program, *arguments, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
    expected, got = ((tmp_path / name).read_text().split("\n") for name in ("dev.b", "out.b"))
    right = sum(a == b for a, b in zip(expected, got, strict=True))
    assert right >= 0.95 * len(expected), right


def test_the_programs_stop_quietly_when_their_reader_goes(road: Road) -> None:
    pipeline = f"{sys.executable} -c 'from t2t_repro.bin.t2t_trainer import run; run()' --registry_help | head -n 1"
    result = subprocess.run(pipeline, shell=True, capture_output=True, text=True, check=False)
    assert result.stdout == "problems:\n"
    assert result.stderr == ""


def test_registry_help_is_quick_and_needs_no_tensorflow() -> None:
    code = (
        "import sys; sys.argv = ['t2t-trainer', '--registry_help']\n"
        "from t2t_repro.bin import t2t_trainer\n"
        "try: t2t_trainer.run()\n"
        "except SystemExit: print([name for name in ('tensorflow', 'keras') if name in sys.modules])"
    )
    began = time.monotonic()
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert time.monotonic() - began < 1.0
    assert result.stdout.endswith("[]\n")
    for name in ("text_files", "numbers_ende", "transformer_big", "transformer"):
        assert re.search(rf"^  {name} +\S", result.stdout, re.MULTILINE), name
