"""The main sequence of programs, from raw text to a translation, and the programs' default flags.

test_served.py tests the exported model.
"""

import json
import random
import shutil
from pathlib import Path

import pytest

from programs import (
    LOOKUP,
    SMALL,
    TrainedModel,
    refused,
    run,
    succeed,
    without_extras,
    write_lines,
)


def test_an_average_is_compared_with_the_last_checkpoint(
    trained: TrainedModel, tmp_path: Path
) -> None:
    model = tmp_path / "m"
    shutil.copytree(trained.folder, model, ignore=shutil.ignore_patterns("best", "tensorboard"))
    average = ["avg-checkpoints", f"--output_dir={model}", "--num_last_checkpoints=3"]
    *_, of_average, of_last, verdict = succeed(
        *average, "--eval_decode_lines=10"
    ).stderr.splitlines()
    assert of_average.startswith(
        f"{model}/averaged/model.ckpt-60: dev loss "
    ) and of_average.endswith(" of 10 lines")
    assert of_last.startswith(f"{model}/model.ckpt-60: dev loss ")
    losses = [float(line.split("dev loss ")[1].split(",")[0]) for line in (of_average, of_last)]
    logged = [json.loads(line) for line in (model / "metrics.jsonl").read_text().splitlines()]
    assert losses[1] == pytest.approx(logged[-1]["dev_loss"], abs=1e-4)
    assert of_last.endswith(f" BLEU {logged[-1]['dev_bleu']:.2f} of 10 lines")
    # After so few steps, the average is worse than the last checkpoint.
    assert losses[0] > losses[1]
    assert (
        "the last checkpoint" in verdict and f"--checkpoint_path={model}/model.ckpt-60" in verdict
    )

    description = model / "problem.json"
    fields = json.loads(description.read_text())
    assert fields["data_dir"] == str(trained.data)
    description.write_text(json.dumps({**fields, "data_dir": str(tmp_path / "gone")}))
    result = succeed(*average)
    assert (
        "--data_dir" in result.stderr
        and "the mean of" in result.stderr
        and "dev loss" not in result.stderr
    )
    refused(run(*average, f"--data_dir={tmp_path}"), "no data of problem 'text_files'")
    result = succeed(
        "trainer",
        *trained.flags,
        f"--output_dir={model}",
        "--train_steps=60",
        "--eval_decode_lines=0",
    )
    assert "higher --train_steps" in result.stderr
    assert sorted(path.name for path in model.glob("*.index")) == [
        f"model.ckpt-{step}.index" for step in (20, 40, 60)
    ]


def test_the_defaults_suffice_if_no_download_is_needed(tmp_path: Path) -> None:
    succeed(
        "trainer",
        "--problem=numbers_ende_rev",
        "--hparams_set=transformer_tiny",
        f"--hparams={SMALL}",
        "--train_steps=2",
        "--train_size=300",
        "--vocab_size=340",
        *LOOKUP,
        cwd=tmp_path,
    )
    model = tmp_path / "t2t_train" / "numbers_ende_rev-transformer_tiny"
    assert (model / "model.ckpt-2.index").exists()
    assert (tmp_path / "t2t_data" / "numbers_ende.json").exists()
    assert json.loads((model / "problem.json").read_text())["problem"] == "numbers_ende_rev"


def test_a_model_learns_to_copy(tmp_path: Path) -> None:
    """A model learns to copy: at least 99% of the dev tokens. The toolkit Sockeye tests this,
    too.
    """
    draw = random.Random(1)
    words = ["ab", "cd", "ef", "gh", "ij", "kl", "mn", "op"]
    lines = [" ".join(draw.choices(words, k=draw.randint(2, 6))) for _ in range(4100)]
    dev = write_lines(tmp_path / "dev", lines[:100])
    train = write_lines(tmp_path / "train", lines[100:])
    for program, *arguments in (
        (
            "datagen",
            "--problem=text_files",
            f"--train={train},{train}",
            f"--dev={dev},{dev}",
            "--vocab_size=300",
            "--data_dir=data",
        ),
        (
            "trainer",
            "--problem=text_files",
            "--data_dir=data",
            "--output_dir=m",
            "--hparams_set=transformer_tiny",
            "--hparams=num_hidden_layers=1,hidden_size=48,filter_size=64,norm_before=true,batch_size=400,layer_prepostprocess_dropout=0.0,learning_rate_constant=0.015,learning_rate_warmup_steps=50",
            "--train_steps=200",
            "--local_eval_frequency=200",
            "--eval_decode_lines=0",
        ),
    ):
        with without_extras():
            succeed(program, *arguments, cwd=tmp_path)
    evaluation = json.loads((tmp_path / "m" / "metrics.jsonl").read_text().splitlines()[-1])
    assert evaluation["dev_accuracy"] >= 0.99, evaluation
