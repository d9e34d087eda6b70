"""The main sequence of programs, from raw text to a translation, and the programs' default flags.

test_served.py tests the exported model.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from programs import LOOKUP, SMALL, TrainedModel, command, refused, run, succeed

LINES = [
    "one thousand, nine hundred and fifty-one",
    "",
    "one thousand and two",
    "   ",
    "café   →  naïve\u2028 \u0085x",
]


def test_an_average_is_compared_with_the_last_checkpoint(trained: TrainedModel, tmp_path: Path) -> None:
    model = tmp_path / "m"
    shutil.copytree(trained.folder, model, ignore=shutil.ignore_patterns("best", "tensorboard"))
    average = ["avg-checkpoints", f"--output_dir={model}", "--num_last_checkpoints=3"]
    *_, of_average, of_last, verdict = succeed(*average, "--eval_decode_lines=2").stderr.splitlines()
    assert of_average.startswith(f"{model}/averaged/model.ckpt-60: dev loss ") and of_average.endswith(" of 2 lines")
    assert of_last.startswith(f"{model}/model.ckpt-60: dev loss ") and of_last.endswith(" of 2 lines")
    losses = [float(line.split("dev loss ")[1].split(",")[0]) for line in (of_average, of_last)]
    logged = [json.loads(line) for line in (model / "metrics.jsonl").read_text().splitlines()]
    assert losses[1] == pytest.approx(logged[-1]["dev_loss"], abs=1e-4)
    assert losses[0] > losses[1]  # after so few steps, the average is worse than the last checkpoint
    assert "the last checkpoint" in verdict and f"--checkpoint_path={model}/model.ckpt-60" in verdict

    description = model / "problem.json"
    fields = json.loads(description.read_text())
    assert fields["data_dir"] == str(trained.data)
    for data_dir in ("", str(tmp_path / "gone")):
        description.write_text(json.dumps({**fields, "data_dir": data_dir}))
        result = succeed(*average)
        assert "the average will not be compared with the last checkpoint: " in result.stderr
        assert "--data_dir" in result.stderr and "the mean of" in result.stderr and "dev loss" not in result.stderr
    result = succeed(*average[:2], "--num_last_checkpoints=1")
    assert result.stderr.endswith("\nthe mean of one checkpoint is this checkpoint\n")
    shutil.rmtree(model / "averaged")
    refused(run(*average, f"--data_dir={tmp_path}"), "no data of problem 'text_files'")
    assert not (model / "averaged").exists()
    assert "dev loss" in succeed(*average, f"--data_dir={trained.data}", "--eval_decode_lines=0").stderr


def test_translation_needs_only_the_model_folder(trained: TrainedModel, tmp_path: Path) -> None:
    model = tmp_path / "moved"
    shutil.copytree(trained.folder, model)
    succeed("avg-checkpoints", f"--output_dir={model}", "--num_last_checkpoints=3", "--nocompare", cwd=tmp_path)

    source = "\n".join(LINES) + "\n"
    (tmp_path / "x.en").write_text(source, encoding="utf-8")
    decoder = ("decoder", f"--output_dir={model}", "--decode_hparams=extra_length=5")
    decoded = succeed(*decoder, "--decode_from_file=x.en", "--decode_to_file=x.de", cwd=tmp_path)
    assert decoded.stdout == ""
    assert "averaged" in decoded.stderr
    outputs = (tmp_path / "x.de").read_text(encoding="utf-8").split("\n")
    assert len(outputs) == len(LINES) + 1
    assert outputs[1] == outputs[3] == outputs[5] == ""
    assert outputs[0] and outputs[2] and outputs[4]
    assert succeed(*decoder, input=source).stdout == "\n".join(outputs)


def test_the_trainer_writes_hparams_and_checkpoints(trained: TrainedModel) -> None:
    hparams = json.loads((trained.folder / "hparams.json").read_text())
    assert (hparams["hidden_size"], hparams["train_steps"]) == (32, 60)
    names = sorted(path.name for path in trained.folder.glob("*.index"))
    assert names == [f"model.ckpt-{step}.index" for step in (20, 40, 60)]


def test_a_finished_training_asks_for_more_steps(trained: TrainedModel) -> None:
    result = succeed("trainer", *trained.flags, "--train_steps=60", "--eval_decode_lines=0")
    assert "higher --train_steps" in result.stderr


def test_a_compressed_corpus_gives_the_same_data(trained: TrainedModel, tmp_path: Path) -> None:
    corpora = []
    for split in ("train", "dev"):
        paths = []
        for language in ("en", "de"):
            paths.append(tmp_path / f"{split}.{language}.gz")
            paths[-1].write_bytes(gzip.compress((trained.text / f"{split}.{language}").read_bytes()))
        corpora.append(f"--{split}={paths[0]},{paths[1]}")
    data = tmp_path / "data"
    succeed("datagen", "--problem=text_files", *corpora, "--vocab_size=340", f"--data_dir={data}")
    for path in trained.data.iterdir():
        if path.suffix != ".json":
            assert path.read_bytes() == (data / path.name).read_bytes(), path.name


def test_the_defaults_suffice_if_no_download_is_needed(tmp_path: Path) -> None:
    succeed(
        "trainer", "--problem=numbers_ende_rev", "--hparams_set=transformer_tiny", f"--hparams={SMALL}",
        "--train_steps=2", "--train_size=300", "--vocab_size=340", *LOOKUP, cwd=tmp_path,
    )  # fmt: skip
    model = tmp_path / "t2t_train" / "numbers_ende_rev-transformer_tiny"
    assert (model / "model.ckpt-2.index").exists()
    assert (tmp_path / "t2t_data" / "numbers_ende.json").exists()
    assert json.loads((model / "problem.json").read_text())["problem"] == "numbers_ende_rev"


def test_a_model_learns_to_copy(tmp_path: Path) -> None:
    """A model learns to copy: it copies at least 95% of the dev lines exactly. The toolkit Sockeye tests this, too."""
    words = ["ab", "cd", "ef", "gh", "ij", "kl", "mn", "op"]

    def text(count: int, salt: int) -> str:
        numbers = (
            [(number * 7919 + salt + place * place * 31 + number // 13 * place) % 8 for place in range(2 + number % 5)]
            for number in range(count)
        )
        return "".join(" ".join(words[number] for number in line) + "\n" for line in numbers)

    for name, count, salt in (("train", 4000, 1), ("dev", 200, 2)):
        for language in ("a", "b"):
            (tmp_path / f"{name}.{language}").write_text(text(count, salt))
    train, dev = (f"{tmp_path / name}.a,{tmp_path / name}.b" for name in ("train", "dev"))
    for program, *arguments in (
        ("datagen", "--problem=text_files", f"--train={train}", f"--dev={dev}", "--vocab_size=300", "--data_dir=data"),
        ("trainer", "--problem=text_files", "--data_dir=data", "--output_dir=m", "--hparams_set=transformer_tiny",
         "--hparams=num_hidden_layers=1,hidden_size=64,filter_size=64,batch_size=600,learning_rate_warmup_steps=100",
         "--train_steps=300", "--local_eval_frequency=300", "--eval_decode_lines=0"),
        ("decoder", "--output_dir=m", "--decode_from_file=dev.a", "--decode_to_file=out.b"),
    ):  # fmt: skip
        succeed(program, *arguments, cwd=tmp_path)
    expected, outputs = ((tmp_path / name).read_text().split("\n") for name in ("dev.b", "out.b"))
    equal = sum(output == line for output, line in zip(outputs, expected, strict=True))
    assert equal >= 0.95 * len(expected), equal


def test_a_program_stops_quietly_when_its_reader_ends() -> None:
    pipeline = f"{' '.join(command('trainer'))} --registry_help | head -n 1"
    result = subprocess.run(pipeline, shell=True, capture_output=True, text=True, check=False)
    assert result.stdout == "problems:\n"
    assert result.stderr == ""


def test_registry_help_needs_no_tensorflow() -> None:
    code = (
        "import sys; sys.argv = ['t2t-trainer', '--registry_help']\n"
        "from t2t_repro.bin import t2t_trainer\n"
        "try: t2t_trainer.run()\n"
        "except SystemExit: print([name for name in ('tensorflow', 'keras') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.endswith("[]\n")
    for name in ("text_files", "numbers_ende", "transformer_big", "transformer"):
        assert re.search(rf"^  {name} +\S", result.stdout, re.MULTILINE), name
